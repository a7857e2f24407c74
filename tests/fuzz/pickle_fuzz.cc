// SPDX-License-Identifier: Apache-2.0
// The pickle in a checkpoint or a dump of PyTorch, which may come from anyone.
#include "rendezvous/values/pickle.h"
#include "tests/fuzz/fuzz.h"

namespace ddprun::fuzz {

std::vector<std::string> Seeds() {
  using namespace std::string_literals;
  const std::string zeros(3, '\0');
  // pickle.dumps({'a': [1, 2.5, None, True, (3,)], 'b': OrderedDict()}, protocol=2); a persistent
  // id; numbers of every length.
  return {"\x80\x02}q\0(X\x01"s + zeros + "aq\x01]q\x02(K\x01G@\x04"s + zeros + zeros +
              "N\x88K\x03\x85q\x03"
              "eX\x01"s +
              zeros +
              "bq\x04"
              "ccollections\nOrderedDict\nq\x05)Rq\x06u."s,
          "\x80\x02(X\x07"s + zeros + "storageX\x01"s + zeros + "0K\x04tQ."s,
          "\x80\x02]q\0(M\x10\x27J\xff\xff\xff\xff\x8a\x02\0\x01U\x03"
          "abce."s};
}

bool Try(std::string_view bytes) {
  try {
    (void)ParsePickle(bytes).root();
    return true;
  } catch (const PickleError&) {
    return false;
  }
}

}  // namespace ddprun::fuzz
