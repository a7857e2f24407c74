// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/service_program.h"

int main(int argc, char** argv) { return ddprun::ServiceProgram(argc, argv); }
