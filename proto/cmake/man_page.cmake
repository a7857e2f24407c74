# SPDX-License-Identifier: Apache-2.0
# The manual page of a program, made from its --help and installed with it:
#   ddprun_man_page(ddpctl launcher DEPENDS ddprun)     launcher: the install component
find_package(Python3 REQUIRED COMPONENTS Interpreter)

function(ddprun_man_page program component)
  cmake_parse_arguments(ARG "" "" "DEPENDS" ${ARGN})
  set(page ${CMAKE_CURRENT_BINARY_DIR}/${program}.1)
  add_custom_command(OUTPUT ${page}
    COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/proto/cmake/man_page.py $<TARGET_FILE:${program}> ${PROJECT_VERSION} > ${page}
    DEPENDS ${program} ${ARG_DEPENDS} ${PROJECT_SOURCE_DIR}/proto/cmake/man_page.py VERBATIM)
  add_custom_target(${program}-man ALL DEPENDS ${page})
  install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT ${component})
endfunction()
