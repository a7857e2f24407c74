# SPDX-License-Identifier: Apache-2.0
# libddprun.a and what makes it a package: headers, the CMake package ddprun, pkg-config's ddprun.pc.
#
# One object with all that it is made of, Abseil included, of which only the names in exported_symbols.txt are seen from
# outside: a program may have any other Abseil. No shared library: Debian's archives of it are compiled for programs alone
# (thread-local storage of the local-exec model).
include(CMakePackageConfigHelpers)

find_package(Python3 REQUIRED COMPONENTS Interpreter)
file(GLOB absl_archives /usr/lib/*/libabsl_*.a /usr/lib*/libabsl_*.a)
if(NOT absl_archives)
  message(WARNING "No static Abseil was found: building without libddprun.a.")
  return()
endif()

set(archives)
set(own_objects)
foreach(part library distributed checkpoint files memory sampling sync_norm accelerator)
  list(APPEND own_objects $<TARGET_OBJECTS:ddprun_worker_${part}>)
endforeach()
foreach(room ddprun_rendezvous_core ddprun_rendezvous_base ddprun_contract ddprun_pickle)
  list(APPEND archives $<TARGET_FILE:${room}>)
endforeach()
set(exported ${CMAKE_CURRENT_SOURCE_DIR}/library/exported_symbols.txt)
set(library ${PROJECT_BINARY_DIR}/lib/libddprun.a)
set(merged ${CMAKE_CURRENT_BINARY_DIR}/ddprun.o)
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
add_custom_command(OUTPUT ${library}
  # Without groups: the linker of a program would take another library's copy of one in place of ours.
  COMMAND ${CMAKE_LINKER} -r --force-group-allocation -o ${merged} ${own_objects}
          --start-group ${archives} ${absl_archives} --end-group
  COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/library/no_unique_symbols.py ${merged}
  COMMAND ${CMAKE_OBJCOPY} --strip-debug --wildcard --keep-global-symbols=${exported} ${merged}
  COMMAND ${CMAKE_COMMAND} -E rm -f ${library}
  COMMAND ${CMAKE_AR} qcs ${library} ${merged}
  DEPENDS ${own_objects} ${archives} ${exported}
  COMMAND_EXPAND_LISTS VERBATIM)
add_custom_target(ddprun_library ALL DEPENDS ${library})

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/ddprun)
configure_package_config_file(library/ddprunConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/ddprunConfig.cmake
  INSTALL_DESTINATION ${package_folder} PATH_VARS CMAKE_INSTALL_BINDIR CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR
  NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/ddprunConfigVersion.cmake
  VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)  # before 1.0 any minor version may change the interface
configure_file(library/ddprun.pc.in ${CMAKE_CURRENT_BINARY_DIR}/ddprun.pc @ONLY)

# In a folder of the LibTorch that it was built with: C++ has no stable interface from one to another, and a package may have
# one library for each.
install(FILES ${library} DESTINATION ${CMAKE_INSTALL_LIBDIR}/ddprun/torch-${torch_minor_version} COMPONENT dev)
install(DIRECTORY include/ddprun DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ddprunConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/ddprunConfigVersion.cmake
        DESTINATION ${package_folder} COMPONENT dev)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ddprun.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
