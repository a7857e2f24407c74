# SPDX-License-Identifier: Apache-2.0
# Debian's packages by CPack, one for each install component: `cpack -G DEB` in the build folder (deploy/deb.sh).
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME ddprun)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(DDPRUN_PACKAGE_CONTACT "The ddprun developers <ddprun@example.org>" CACHE STRING "Maintainer of the Debian packages")
set(CPACK_PACKAGE_CONTACT ${DDPRUN_PACKAGE_CONTACT})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
# A component without an install rule has no package: libddprun-dev comes with the first COMPONENT dev.
get_cmake_property(CPACK_COMPONENTS_ALL COMPONENTS)
list(FILTER CPACK_COMPONENTS_ALL INCLUDE REGEX "^(launcher|train|dev)$")
# Manual pages, documents, and where Debian has what elsewhere is in other places.
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/arrange.cmake)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
# LibTorch's side, which no package of Debian brings: it is found, and nothing is said about it.
if(DDPRUN_WITH_TORCH)
  file(GLOB private ${DDPRUN_TORCH_DIR}/lib ${DDPRUN_TORCH_DIR}/../nvidia/*/lib)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${private})
endif()

set(CPACK_DEBIAN_LAUNCHER_PACKAGE_NAME ddprun)
set(CPACK_DEBIAN_TRAIN_PACKAGE_NAME ddprun-train)
set(CPACK_DEBIAN_DEV_PACKAGE_NAME libddprun-dev)
# The first line is the synopsis; CPack indents the others as Debian wants it.
set(CPACK_COMPONENT_LAUNCHER_DESCRIPTION "launcher of distributed training, compatible with torchrun
ddprun starts, watches and restarts the workers of distributed training on one
machine or many, with torchrun's flags and environment. This package has the
launcher, ddpctl, the rendezvous service and the Python package ddprun.")
set(CPACK_COMPONENT_TRAIN_DESCRIPTION "trains image classifiers with LibTorch under ddprun
A training program in C++ with distributed data parallelism, pipelines,
checkpoints and mixed precision. It needs a torch that it is built for,
which is not in Debian: install it with pip, or name its folder in DDPRUN_TORCH.")
set(CPACK_COMPONENT_DEV_DESCRIPTION "distributed data parallel training in C++ with LibTorch
Headers, library and CMake package of libddprun: data parallelism, checkpoints
and recovery in place for any module of LibTorch. It needs a torch that it is
built for, which is not in Debian: install it with pip, or name its folder in
DDPRUN_TORCH_DIR.")
set(CPACK_DEBIAN_LAUNCHER_PACKAGE_RECOMMENDS "python3, libhwloc15")
# What a program that is linked with libddprun.a is linked with besides LibTorch.
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "libisal2, zlib1g")
set(CPACK_DEBIAN_DEV_PACKAGE_RECOMMENDS "ddprun, ddprun-train, cmake, g++")
set(CPACK_DEBIAN_TRAIN_PACKAGE_DEPENDS "ddprun (= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")
set(CPACK_DEBIAN_TRAIN_PACKAGE_RECOMMENDS "python3, python3-venv, fonts-dejavu-core")
set(CPACK_DEBIAN_LAUNCHER_PACKAGE_CONTROL_EXTRA
    "${CMAKE_CURRENT_LIST_DIR}/postinst;${CMAKE_CURRENT_LIST_DIR}/prerm;${CMAKE_CURRENT_LIST_DIR}/postrm")
set(CPACK_DDPRUN_BUILD ${PROJECT_BINARY_DIR})
include(CPack)
