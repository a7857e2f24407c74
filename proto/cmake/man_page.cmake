# SPDX-License-Identifier: Apache-2.0
# The manual page of a program, made from its --help and installed with it:
#   ddprun_man_page(ddpctl launcher)     launcher: the install component
find_package(Python3 REQUIRED COMPONENTS Interpreter)

function(ddprun_man_page program component)
  set(page ${CMAKE_CURRENT_BINARY_DIR}/${program}.1)
  add_custom_command(OUTPUT ${page}
    # A sanitizer's finding in a library that is loaded is not this step's.
    COMMAND ${CMAKE_COMMAND} -E env ASAN_OPTIONS=detect_leaks=0 TSAN_OPTIONS=report_bugs=0 ${Python3_EXECUTABLE}
            ${PROJECT_SOURCE_DIR}/proto/cmake/man_page.py $<TARGET_FILE:${program}> ${PROJECT_VERSION}
            ${CMAKE_CROSSCOMPILING_EMULATOR} > ${page}
    DEPENDS ${program} ${PROJECT_SOURCE_DIR}/proto/cmake/man_page.py VERBATIM)
  add_custom_target(${program}-man ALL DEPENDS ${page})
  install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT ${component})
endfunction()
