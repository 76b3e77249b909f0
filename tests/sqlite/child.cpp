// What tests let another process do: child COMMAND PATH [NUMBER...]. Says what happens on standard output, a
// line each, and ends when its standard input does.

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <random>
#include <thread>
#include <vector>

#include "adapters/sqlite/guard.hpp"
#include "tests/sqlite/calls.hpp"

namespace fenceguard::test {
namespace {

using Arguments = std::vector<std::string>;

void say(const std::string& line) {
  const std::string text = line + "\n";
  if (write(STDOUT_FILENO, text.data(), text.size()) < 0) _exit(1);
}

void wait_for_end_of_input() {
  char byte = 0;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
}

// open PATH: opens as the guard, says 'open', and stays.
int open_and_stay(const Arguments& arguments) {
  const OpenStorage storage{arguments[0]};
  say("open");
  wait_for_end_of_input();
  return 0;
}

// wait-for-init PATH: a guard that was started without state; says 'uninitialised', and the floor once there
// is one.
int wait_for_init(const Arguments& arguments) {
  const OpenStorage storage{arguments[0], StorageOptions{}};
  say(storage.status().state == StoreState::uninitialised ? "uninitialised" : "ready");
  while (storage.status().state != StoreState::ready)
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
  say(std::to_string(storage.status().floor));
  say(to_string(storage.advance(claim_of("r", storage.status().floor)).verdict));
  say(to_string(storage.advance(claim_of("r", storage.status().floor + 1)).verdict));
  wait_for_end_of_input();
  return 0;
}

// open-as-nobody PATH: as a user who owns nothing.
int open_as_nobody(const Arguments& arguments) {
  constexpr uid_t nobody = 65534;
  if (setgid(nobody) != 0 || setuid(nobody) != 0) return 1;
  return open_and_stay(arguments);
}

// advance PATH RESOURCE TOKEN: in a transaction of its own, as a service does; says the verdict.
int advance(const Arguments& arguments) {
  sqlite::Database database{arguments[0], sqlite::Database::Mode::read_write};
  sqlite::Guard guard{database.handle()};
  say(to_string(guard.advance(claim_of(arguments[1], std::stoll(arguments[2]))).verdict));
  return 0;
}

// transaction PATH RESOURCE TOKEN: the same, but says the verdict before the commit, which is at the end of
// input.
int stay_in_transaction(const Arguments& arguments) {
  sqlite::Database database{arguments[0], sqlite::Database::Mode::read_write};
  sqlite::Transaction tx{database.handle()};
  say(to_string(admit_in(tx, claim_of(arguments[1], std::stoll(arguments[2]))).verdict));
  wait_for_end_of_input();
  tx.commit();
  return 0;
}

// race PATH FIRST STEP COUNT: writes to the service's own table of PATH with tokens FIRST, FIRST + STEP, ...;
// each write appends its token to a log in the same transaction.
int race(const Arguments& arguments) {
  sqlite::Database database{arguments[0], sqlite::Database::Mode::read_write};
  sqlite::Guard guard{database.handle()};
  sqlite::Statement append{database.handle(), "INSERT INTO log (resource, token) VALUES (?1, ?2)"};
  const std::int64_t step = std::stoll(arguments[2]);
  std::int64_t token = std::stoll(arguments[1]);
  int admitted = 0;
  for (int i = std::stoi(arguments[3]); i > 0; --i, token += i % 3 == 0 ? step : 0) {
    const auto claim = claim_of("r/" + std::to_string(i % 2), token, "h" + arguments[1]);
    const auto ruling = guard.write(
        claim, [&](sqlite3*) { append.bind(std::string_view{claim.resource.name()}, token).run(); });
    admitted += ruling.verdict == Verdict::admitted ? 1 : 0;
  }
  say(std::to_string(admitted));
  return 0;
}

// writers PATH THREADS FIRST: opens as the guard and writes with several tokens until it is killed; says
// 'a RESOURCE TOKEN' for each admitted advance and 'w RESOURCE TOKEN NUMBER' for each admitted write.
int writers(const Arguments& arguments) {
  const OpenStorage storage{arguments[0]};
  say("open");
  std::atomic<std::int64_t> next{std::stoll(arguments[2])};
  std::vector<std::jthread> threads;
  for (int i = 0; i < std::stoi(arguments[1]); ++i) {
    threads.emplace_back([&, i] {
      std::mt19937 random{static_cast<unsigned>(next.load()) + static_cast<unsigned>(i)};
      for (;;) {
        const std::string resource = "r/" + std::to_string(random() % 3);
        const std::int64_t token = next++;
        const auto claim = claim_of(resource, token, "h" + std::to_string(token));
        const auto words = resource + " " + std::to_string(token);
        if (storage.advance(claim).verdict != Verdict::admitted) continue;
        say("a " + words);
        for (int number = 1; number <= 4; ++number) {
          const auto text = std::to_string(number);
          const auto report = storage.put(claim.with(Sequence{number}), words + " " + text);
          if (report.ruling.verdict == Verdict::admitted) say("w " + words + " " + text);
        }
      }
    });
  }
  wait_for_end_of_input();
  _exit(0);
}

// fill PATH BYTES: writes objects of 16 KiB until no file may grow beyond BYTES; then lifts the limit and
// writes again. Says 'w NUMBER' for each write, 'unavailable', and 'again' at the end.
int fill(const Arguments& arguments) {
  signal(SIGXFSZ, SIG_IGN);
  const OpenStorage storage{arguments[0]};
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit tight{static_cast<rlim_t>(std::stoull(arguments[1])), limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &tight);
  int number = 0;
  const auto write_one = [&] {
    ++number;
    const auto name = "o/" + std::to_string(number);
    (void)storage.put(claim_of(name, 1), std::string(16'384, 'x'));
    say("w " + std::to_string(number));
  };
  try {
    for (;;) write_one();
  } catch (const Error& error) {
    say(error.kind() == FaultKind::unknown ? "unknown" : "unavailable");
  }
  setrlimit(RLIMIT_FSIZE, &limit);
  while (storage.status().state != StoreState::ready)
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
  write_one();
  say("again");
  return 0;
}

int run(const std::string& command, const Arguments& arguments) {
  if (command == "open") return open_and_stay(arguments);
  if (command == "wait-for-init") return wait_for_init(arguments);
  if (command == "open-as-nobody") return open_as_nobody(arguments);
  if (command == "advance") return advance(arguments);
  if (command == "transaction") return stay_in_transaction(arguments);
  if (command == "race") return race(arguments);
  if (command == "writers") return writers(arguments);
  if (command == "fill") return fill(arguments);
  return 2;
}

}  // namespace
}  // namespace fenceguard::test

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  try {
    return fenceguard::test::run(argv[1], {argv + 2, argv + argc});
  } catch (const std::exception& error) {
    std::cout << "refused: " << error.what() << std::endl;
    return 3;
  }
}
