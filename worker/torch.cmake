# SPDX-License-Identifier: Apache-2.0
# LibTorch as targets of our own, from the `torch` wheel (or an unpacked libtorch archive).
#
# find_package(Torch) is not used: it brings an imported protobuf of another version, wants a CUDA toolkit, and makes
# every program load CUDA. Here
#   ddprun_torch       is the CPU half (libtorch_cpu, libc10): a CPU run maps no CUDA library of LibTorch's,
#   ddprun_torch_cuda  adds the CUDA half and NCCL; absent where the torch found has no CUDA.
# The versions that this was tried with, oldest first; deploy/setup.sh installs the last one (deploy/common.sh has the same rule).
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/deploy/common.sh")
file(STRINGS "${PROJECT_SOURCE_DIR}/deploy/common.sh" known_torches REGEX "^torch_versions=")
string(REGEX MATCHALL "[0-9]+\\.[0-9]+\\.[0-9]+" known_torches "${known_torches}")
set(DDPRUN_KNOWN_TORCHES "${known_torches}" CACHE INTERNAL "")
list(GET known_torches 0 oldest_torch)
list(GET known_torches -1 newest_torch)
set(ddprun_cache "$ENV{DDPRUN_CACHE_DIR}")
if(NOT ddprun_cache AND DEFINED ENV{XDG_CACHE_HOME})
  set(ddprun_cache "$ENV{XDG_CACHE_HOME}/ddprun")
elseif(NOT ddprun_cache)
  set(ddprun_cache "$ENV{HOME}/.cache/ddprun")
endif()
if(NOT DDPRUN_TORCH_DIR)
  if(DEFINED ENV{DDPRUN_TORCH_DIR})
    set(default_torch_dir "$ENV{DDPRUN_TORCH_DIR}")
  else()
    file(GLOB default_torch_dir "${ddprun_cache}/torch-${newest_torch}/lib/python3*/site-packages/torch")
  endif()
  set(DDPRUN_TORCH_DIR "${default_torch_dir}" CACHE PATH "The installed torch package: a folder with include/ and lib/" FORCE)
endif()
if(NOT EXISTS "${DDPRUN_TORCH_DIR}/lib/libtorch_cpu.so")
  message(FATAL_ERROR
    "LibTorch was not found: DDPRUN_TORCH_DIR is \"${DDPRUN_TORCH_DIR}\", which has no lib/libtorch_cpu.so. "
    "Run deploy/setup.sh, which installs it and says what to set, or pass -DDDPRUN_WITH_TORCH=OFF to build "
    "everything but the training program.")
endif()

# What was found beside another LibTorch belongs to that one.
if(NOT DDPRUN_TORCH_DIR STREQUAL DDPRUN_TORCH_DIR_BEFORE)
  if(DDPRUN_TORCH_DIR_BEFORE)
    foreach(found CUDA_INCLUDE_DIR NCCL_INCLUDE_DIR CUDA_CCCL_INCLUDE_DIR CUDART_LIBRARY NCCL_LIBRARY NVRTC_LIBRARY)
      unset(DDPRUN_${found} CACHE)
    endforeach()
  endif()
  set(DDPRUN_TORCH_DIR_BEFORE "${DDPRUN_TORCH_DIR}" CACHE INTERNAL "")
endif()

# The wheel states its version in version.py, the archive in build-version.
if(EXISTS "${DDPRUN_TORCH_DIR}/version.py")
  file(STRINGS "${DDPRUN_TORCH_DIR}/version.py" torch_version REGEX "^__version__ *=")
else()
  file(STRINGS "${DDPRUN_TORCH_DIR}/build-version" torch_version LIMIT_COUNT 1)
endif()
string(REGEX MATCH "[0-9]+\\.[0-9]+(\\.[0-9]+)?" torch_version "${torch_version}")
string(REGEX MATCH "^[0-9]+\\.[0-9]+" torch_minor_version "${torch_version}")
set(DDPRUN_TORCH_MINOR "${torch_minor_version}" CACHE INTERNAL "")
string(REGEX MATCH "^[0-9]+\\.[0-9]+" newest_torch_minor "${newest_torch}")
if(torch_version VERSION_LESS oldest_torch)
  message(FATAL_ERROR "LibTorch in ${DDPRUN_TORCH_DIR} is version ${torch_version}; ${oldest_torch} or newer is needed. "
                      "Run deploy/setup.sh, which installs ${newest_torch}.")
elseif(torch_minor_version VERSION_GREATER newest_torch_minor)
  message(STATUS "LibTorch ${torch_version} is newer than any that ddprun was tried with (${oldest_torch} to ${newest_torch}); if it "
                 "does not build, use one of those, or mend worker/library/base/torch_versions.h, where the versions differ")
endif()

# Our C++ passes std::string to LibTorch, so both must have been built with the C++11 ABI.
file(STRINGS "${DDPRUN_TORCH_DIR}/lib/libc10.so" torch_new_abi REGEX "_ZN3c105ErrorC[12].*NSt7__cxx1112basic_string"
     LIMIT_COUNT 1)
if(NOT torch_new_abi)
  message(FATAL_ERROR "LibTorch in ${DDPRUN_TORCH_DIR} was built with the C++ ABI from before C++11. "
                      "Run deploy/setup.sh, which installs a wheel with today's.")
endif()

find_path(DDPRUN_GLOO_INCLUDE_DIR gloo/algorithm.h DOC "Headers of Gloo, which the wheel does not carry")
if(NOT DDPRUN_GLOO_INCLUDE_DIR)
  message(FATAL_ERROR "Gloo's headers were not found: install the package libgloo-dev (deploy/setup.sh does).")
endif()

# The nvidia-* wheels lie beside torch: nvidia/cu13, nvidia/nccl, ...
file(GLOB nvidia_library_dirs LIST_DIRECTORIES true "${DDPRUN_TORCH_DIR}/../nvidia/*/lib")
file(GLOB nvidia_include_dirs LIST_DIRECTORIES true "${DDPRUN_TORCH_DIR}/../nvidia/*/include")

add_library(ddprun_torch INTERFACE)
target_include_directories(ddprun_torch INTERFACE "${PROJECT_SOURCE_DIR}/worker/include")
target_include_directories(ddprun_torch SYSTEM INTERFACE
  "${DDPRUN_TORCH_DIR}/include" "${DDPRUN_TORCH_DIR}/include/torch/csrc/api/include" "${DDPRUN_GLOO_INCLUDE_DIR}")
target_compile_definitions(ddprun_torch INTERFACE USE_C10D_GLOO USE_DISTRIBUTED)
target_link_libraries(ddprun_torch INTERFACE
  "${DDPRUN_TORCH_DIR}/lib/libtorch_cpu.so" "${DDPRUN_TORCH_DIR}/lib/libc10.so" Threads::Threads)
# libtorch_cpu itself needs a few small libraries of the nvidia-* wheels, which its own RPATH finds at run time.
foreach(dir ${nvidia_library_dirs} "${DDPRUN_TORCH_DIR}/lib")
  target_link_options(ddprun_torch INTERFACE "LINKER:-rpath-link,${dir}")
endforeach()

set(DDPRUN_TORCH_HAS_CUDA OFF)
set(torch_cuda "")
if(EXISTS "${DDPRUN_TORCH_DIR}/version.py")
  file(STRINGS "${DDPRUN_TORCH_DIR}/version.py" torch_cuda REGEX "^cuda")
  string(REGEX MATCH "[0-9]+\\.[0-9]+" torch_cuda "${torch_cuda}")
endif()
file(GLOB extra_include_dirs LIST_DIRECTORIES true "${ddprun_cache}/cuda-headers-${torch_cuda}/nvidia/*/include")
if(DDPRUN_WITH_CUDA AND EXISTS "${DDPRUN_TORCH_DIR}/lib/libtorch_cuda.so")
  find_path(DDPRUN_CUDA_INCLUDE_DIR cuda_runtime_api.h HINTS ${nvidia_include_dirs} /usr/local/cuda/include
            DOC "CUDA's headers; no toolkit is needed")
  find_path(DDPRUN_NCCL_INCLUDE_DIR nccl.h HINTS ${nvidia_include_dirs} /usr/local/cuda/include)
  # Those headers include crt/*.h and nv/target, which are in wheels that torch does not pull; deploy/setup.sh gets them.
  find_path(DDPRUN_CUDA_EXTRA_INCLUDE_DIR crt/host_defines.h
            HINTS ${nvidia_include_dirs} ${extra_include_dirs} /usr/local/cuda/include
            DOC "A folder with crt/host_defines.h, from the package nvidia-cuda-crt or a CUDA toolkit")
  find_path(DDPRUN_CUDA_CCCL_INCLUDE_DIR nv/target
            HINTS "${DDPRUN_CUDA_EXTRA_INCLUDE_DIR}" ${nvidia_include_dirs} ${extra_include_dirs} /usr/local/cuda/include
            DOC "A folder with nv/target, from the package nvidia-cuda-cccl or a CUDA toolkit")
  # The wheels' libraries are the ones that torch loads, though a toolkit has better names for its own.
  find_library(DDPRUN_CUDART_LIBRARY NAMES cudart libcudart.so.13 libcudart.so.12 NAMES_PER_DIR
               HINTS ${nvidia_library_dirs} /usr/local/cuda/lib64)
  find_library(DDPRUN_NCCL_LIBRARY NAMES nccl libnccl.so.2 NAMES_PER_DIR
               HINTS ${nvidia_library_dirs} /usr/local/cuda/lib64)
  # Compiles worker/train/kernels when this is built; nothing needs it later.
  find_library(DDPRUN_NVRTC_LIBRARY NAMES nvrtc libnvrtc.so.13 libnvrtc.so.12 NAMES_PER_DIR
               HINTS ${nvidia_library_dirs} "${DDPRUN_TORCH_DIR}/lib" /usr/local/cuda/lib64)
  if(NOT DDPRUN_NVRTC_LIBRARY)
    message(WARNING "libnvrtc was found neither in the nvidia wheels beside ${DDPRUN_TORCH_DIR} nor in /usr/local/cuda: "
                    "building without worker/train/kernels, so steps on a GPU are slower. Install the package nvidia-cuda-nvrtc, "
                    "which torch's wheel requires, and build in an empty folder.")
  endif()
  if(DDPRUN_CUDA_INCLUDE_DIR AND DDPRUN_CUDA_EXTRA_INCLUDE_DIR AND DDPRUN_CUDA_CCCL_INCLUDE_DIR AND DDPRUN_NCCL_INCLUDE_DIR
     AND DDPRUN_CUDART_LIBRARY AND DDPRUN_NCCL_LIBRARY)
    set(DDPRUN_TORCH_HAS_CUDA ON)
  else()
    message(WARNING "LibTorch in ${DDPRUN_TORCH_DIR} has CUDA, but CUDA's or NCCL's headers or libraries were found "
                    "neither in the nvidia wheels beside it nor in /usr/local/cuda: building without GPU support.")
  endif()
endif()
if(DDPRUN_TORCH_HAS_CUDA)
  add_library(ddprun_torch_cuda INTERFACE)
  target_include_directories(ddprun_torch_cuda SYSTEM INTERFACE
    "${DDPRUN_CUDA_INCLUDE_DIR}" "${DDPRUN_NCCL_INCLUDE_DIR}" ${nvidia_include_dirs} "${DDPRUN_CUDA_EXTRA_INCLUDE_DIR}"
    "${DDPRUN_CUDA_CCCL_INCLUDE_DIR}")
  target_compile_definitions(ddprun_torch_cuda INTERFACE USE_C10D_NCCL)
  # Without --no-as-needed a linker that drops libraries whose symbols are not named would drop the kernels.
  target_link_libraries(ddprun_torch_cuda INTERFACE ddprun_torch -Wl,--no-as-needed
    "${DDPRUN_TORCH_DIR}/lib/libtorch_cuda.so" "${DDPRUN_TORCH_DIR}/lib/libc10_cuda.so"
    "${DDPRUN_NCCL_LIBRARY}" "${DDPRUN_CUDART_LIBRARY}" -Wl,--as-needed)
endif()
message(STATUS "LibTorch ${torch_version} in ${DDPRUN_TORCH_DIR} (CUDA: ${DDPRUN_TORCH_HAS_CUDA})")
