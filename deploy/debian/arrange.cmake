# SPDX-License-Identifier: Apache-2.0
# Run by CPack between installing and packing.
execute_process(COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/arrange.sh ${CPACK_TEMPORARY_INSTALL_DIRECTORY} ${CPACK_PACKAGE_VERSION}
                        ${CPACK_DDPRUN_BUILD} ${CPACK_PACKAGE_CONTACT}
                COMMAND_ERROR_IS_FATAL ANY)
