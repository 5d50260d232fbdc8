// SPDX-License-Identifier: Apache-2.0
// Tells a signal that was sent to the whole process group from one that was
// sent to this process alone. Only the second kind must be passed on to a
// program of the same group: it has the first already, and many programs take
// the second Ctrl-C for "now, without tidying up".
#ifndef INGERO_CLI_GROUP_WITNESS_H_
#define INGERO_CLI_GROUP_WITNESS_H_

#include <sys/types.h>

namespace ingero::cli {

// A process of this group that blocks every signal and sleeps: what it got
// stays pending and is seen in /proc. It ends with this process.
class GroupWitness {
 public:
  // Threads: none other may exist.
  GroupWitness();
  ~GroupWitness();
  GroupWitness(const GroupWitness&) = delete;
  GroupWitness& operator=(const GroupWitness&) = delete;

  // Whether the group got `signal`, which this process has just taken. Waits
  // for it at most 20 ms: some (systemd) send to each process in turn. False
  // where there is no witness.
  bool GroupGot(int signal);

 private:
  void Start();
  void End();

  pid_t pid_ = -1;
};

}  // namespace ingero::cli

#endif  // INGERO_CLI_GROUP_WITNESS_H_
