# SPDX-License-Identifier: Apache-2.0
# `cmake --install BUILD --prefix DIR`: a folder that may be moved. Each program finds what it loads beside itself; LibTorch
# stays where it was built with, and is found there by the path that is written into `train` (RUNPATH). Components, for
# `--component NAME`: launcher; train; dev (the library for other programs). This file installs what is not built.
set(data ${CMAKE_INSTALL_DATADIR}/ddprun)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${data} COMPONENT launcher)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/worker/python/ddprun DESTINATION ${data}/python COMPONENT launcher
        FILES_MATCHING PATTERN "*.py" PATTERN __pycache__ EXCLUDE)
install(FILES ${PROJECT_SOURCE_DIR}/deploy/install/ddprun-rendezvous.service DESTINATION lib/systemd/system COMPONENT launcher)
if(DDPRUN_WITH_TORCH)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/deploy/configs DESTINATION ${data} COMPONENT train FILES_MATCHING PATTERN "*.yaml")
  install(FILES ${PROJECT_SOURCE_DIR}/deploy/config.yaml DESTINATION ${data}/configs COMPONENT train)
endif()

include(${PROJECT_SOURCE_DIR}/deploy/debian/debian.cmake)
