# SPDX-License-Identifier: Apache-2.0
# gRPC and what it stands on, linked from static libraries: loading and relocating 55 shared ones takes longer than all
# that ddprun does to start a worker, and costs 5 MB. What has no static library stays shared.
set(OPENSSL_USE_STATIC_LIBS ${DDPRUN_STATIC_PACKAGES})
set(Protobuf_USE_STATIC_LIBS ${DDPRUN_STATIC_PACKAGES})

# The static sibling of a shared library, or the library itself.
function(ddprun_static_sibling library result)
  string(REGEX REPLACE "\\.so[.0-9]*$" ".a" static "${library}")
  if(library MATCHES "^-l(.+)$")
    find_library(DDPRUN_STATIC_${CMAKE_MATCH_1} lib${CMAKE_MATCH_1}.a)
    set(static ${DDPRUN_STATIC_${CMAKE_MATCH_1}})
  endif()
  if(EXISTS "${static}")
    set(${result} "${static}" PARENT_SCOPE)
  else()
    set(${result} "${library}" PARENT_SCOPE)
  endif()
endfunction()

# Links the static libraries of the packages that the calling folder has found.
function(ddprun_prefer_static_packages)
  if(NOT DDPRUN_STATIC_PACKAGES)
    return()
  endif()
  get_property(targets DIRECTORY PROPERTY IMPORTED_TARGETS)
  list(FILTER targets INCLUDE REGEX "^(absl|c-ares|gRPC|protobuf|re2|SQLite)::")
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    get_target_property(configurations ${target} IMPORTED_CONFIGURATIONS)
    if(type STREQUAL "SHARED_LIBRARY" OR type STREQUAL "UNKNOWN_LIBRARY")
      set(properties IMPORTED_LOCATION)
      foreach(configuration IN LISTS configurations)
        list(APPEND properties IMPORTED_LOCATION_${configuration})
      endforeach()
      foreach(property IN LISTS properties)
        get_target_property(library ${target} ${property})
        if(library)
          ddprun_static_sibling("${library}" library)
          set_target_properties(${target} PROPERTIES ${property} "${library}")
        endif()
      endforeach()
    elseif(target STREQUAL "re2::re2")  # from pkg-config: flags
      get_target_property(flags ${target} INTERFACE_LINK_LIBRARIES)
      set(libraries)
      foreach(flag IN LISTS flags)
        ddprun_static_sibling("${flag}" flag)
        list(APPEND libraries "${flag}")
      endforeach()
      set_target_properties(${target} PROPERTIES INTERFACE_LINK_LIBRARIES "${libraries}")
    endif()
  endforeach()
endfunction()

# For programs that are started often. Not where a shared package would bring C++'s own library a second time.
add_library(ddprun_quick_start INTERFACE)
# Functions of libraries are looked up at the start, which takes no time that can be measured. At a first call ld.so would save all
# vector registers on the stack, and with them the run's secret, where memcpy() has just moved it by one of them.
target_link_options(ddprun_quick_start INTERFACE LINKER:-z,relro LINKER:-z,now)
find_library(DDPRUN_STATIC_grpc libgrpc.a)
find_library(DDPRUN_STATIC_re2 libre2.a)
if(DDPRUN_STATIC_PACKAGES AND DDPRUN_STATIC_grpc AND DDPRUN_STATIC_re2 AND NOT DDPRUN_SANITIZE)
  target_link_options(ddprun_quick_start INTERFACE -static-libstdc++ -static-libgcc LINKER:--gc-sections)
endif()
