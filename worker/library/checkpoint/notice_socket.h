// SPDX-License-Identifier: Apache-2.0
// Hears from the agent that a machine of the run will be taken away, and tells it that this rank
// has saved (launcher/processes/notice_message.h describes the datagrams). Never waits.
#pragma once

#include <string>

#include "rendezvous/base/owned_fd.h"

namespace ddprun {

class NoticeSocket {
 public:
  // Empty, or no agent there: nothing will be heard.
  explicit NoticeSocket(const std::string& notify_socket);

  // The number of the last notice; 0: none has come.
  int Heard();
  // Once for each number; tried again if the agent's queue is full.
  void TellSaved(int notice);

 private:
  bool Send(const std::string& text) const;

  OwnedFd notify_;
  OwnedFd notices_;
  int heard_ = 0;
  int told_ = 0;
};

}  // namespace ddprun
