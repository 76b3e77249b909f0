// campaign-client: one client of the campaign. It takes leases on some resources, advances, reads and writes
// under them, and records what it asked and was told.
//
//   campaign-client --storage URL --source URL --record FILE --process N --seed N --operations N
//                   --resources PREFIX --count N --ttl-ms N --pause PERCENT [--unguarded]
//
// PREFIX/0 to PREFIX/COUNT-1 are the resources. An entry that is written is 'TOKEN NUMBER PROCESS.N'; NUMBER
// is one more than that of the entry that was read before: an update. PERCENT of the writes come late:
// between its read and its write the client stops itself (SIGSTOP), until another process continues it. A
// lease that was lost meanwhile keeps it from nothing; the guard must.
//
// FILE gets two lines for an operation, one before it and one after, in the words of docs/histories.md. Ends
// with 0 once it has done its operations.

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <ctime>
#include <map>
#include <thread>

#include "adapters/schemes.hpp"
#include "guard/error.hpp"
#include "guard/lease.hpp"
#include "tests/proof/campaign/door.hpp"
#include "tests/proof/random.hpp"

namespace fenceguard::campaign {
namespace {

using namespace std::chrono_literals;

struct Options {
  std::string storage, source, record, resources;
  int process = 0, operations = 0, count = 0, pause = 0;
  std::uint64_t seed = 0;
  std::chrono::milliseconds ttl{};
  bool is_guarded = true;
};

std::int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

// Each line is handed to the kernel before the next thing is done, so that a client that is killed has told
// all.
class Record {
 public:
  explicit Record(const std::string& path) : file_{open(path.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0644)} {
    if (file_ < 0) throw InvalidInput("the record cannot be written: " + path);
  }
  void add(const std::string& line) const {
    if (write(file_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) std::abort();
  }

 private:
  const int file_;
};

// What an operation was answered.
struct Told {
  std::string verdict;
  std::int64_t highest = 0;
  std::optional<std::string> entry{};
};

// The updates of one lease.
struct Tenure {
  Claim claim;
  bool has_read = false;
  std::int64_t number = 0;  // of the newest entry that the client knows
};

class Client {
 public:
  explicit Client(Options options)
      : options_{std::move(options)}, random_{options_.seed}, record_{options_.record} {}

  void run() {
    while (done_ < options_.operations) {
      const Resource resource{fmt::format("{}/{}", options_.resources, random_(options_.count))};
      if (random_.percent(10)) look(resource);
      try {
        open();
        if (auto lease = source_->acquire(resource, {.ttl = options_.ttl, .wait = 100ms})) hold(*lease);
      } catch (const Error& error) {
        if (error.kind() == FaultKind::invalid_input) throw;
        std::this_thread::sleep_for(20ms);
      }
    }
  }

 private:
  // What could not be opened is opened again by the next call.
  void open() {
    if (!source_) source_ = open_source(options_.source);
    if (!door_) door_ = open_door(options_.storage);
  }

  void hold(Lease& lease) {
    Tenure tenure{lease.claim()};
    auto told = act("advance", tenure);
    if (told.verdict == "stale" || told.verdict == "conflict") {
      // The source has fallen behind the storage, or another client has come since.
      source_->raise(tenure.claim.resource, Token{std::max<std::int64_t>(told.highest, 1)});
    }
    for (auto left = 5 + random_(9); left > 0; --left) {
      told = act(next(tenure), tenure);
      if (told.verdict == "unknown") break;  // it may still take effect: the next holder will know
      if (told.verdict != "admitted" && random_.percent(50)) break;
    }
    (void)lease.release();
  }

  // With what every tenure begins with, that is 60 % writes, 30 % reads and 10 % advances. Before it writes,
  // a client has read.
  const char* next(const Tenure& tenure) {
    const auto number = random_(100);
    if (number < 74 && tenure.has_read) return "write";
    return number < 97 ? "read" : "advance";
  }

  Told act(const std::string& op, Tenure& tenure) {
    std::string entry;
    if (op == "write") {
      if (random_.percent(options_.pause)) (void)raise(SIGSTOP);
      entry =
          fmt::format("{} {} {}.{}", tenure.claim.token.value(), tenure.number + 1, options_.process, done_);
    }
    const auto told =
        record(op, tenure.claim.resource, &tenure.claim, entry, [&] { return ask(op, tenure, entry); });
    if (told.verdict != "admitted") return told;
    if (op == "write") ++tenure.number;
    if (op == "read") {
      tenure.has_read = true;
      tenure.number = told.entry ? number_in(*told.entry) : 0;
    }
    return told;
  }

  Told ask(const std::string& op, const Tenure& tenure, const std::string& entry) {
    const auto& claim = tenure.claim;
    if (!options_.is_guarded) {
      if (op == "write") door_->write_unguarded(claim.resource, entry);
      return {"admitted", 0, op == "read" ? door_->look(claim.resource) : std::nullopt};
    }
    if (op == "read") {
      auto read = door_->read(claim);
      return {to_string(read.ruling.verdict), read.ruling.highest, std::move(read.entry)};
    }
    const auto ruling = op == "write" ? door_->write(claim, entry) : door_->advance(claim);
    return {to_string(ruling.verdict), ruling.highest};
  }

  // A plain read.
  void look(const Resource& resource) {
    (void)record("read", resource, nullptr, {}, [&]() -> Told {
      open();
      return {"admitted", 0, door_->look(resource)};
    });
  }

  template <class Ask>
  Told record(const std::string& op, const Resource& resource, const Claim* claim, const std::string& entry,
              Ask&& ask) {
    ++done_;
    auto begin =
        fmt::format(R"({{"op":"{}","resource":"{}","process":{})", op, resource.name(), options_.process);
    if (claim != nullptr)
      begin += fmt::format(R"(,"token":"{}","holder":"{}")", claim->token.value(), claim->holder.id());
    if (!entry.empty()) begin += fmt::format(R"(,"value":"{}")", entry);
    record_.add(fmt::format("{},\"called\":{}}}\n", begin, now_ns()));
    Told told;
    try {
      told = ask();
    } catch (const Error& error) {
      if (error.kind() == FaultKind::invalid_input) throw;
      told.verdict = to_string(error.kind());
    }
    auto end = fmt::format(R"({{"returned":{},"verdict":"{}")", now_ns(), told.verdict);
    if (told.highest > 0) end += fmt::format(R"(,"highest":"{}")", told.highest);
    if (op == "read" && told.verdict == "admitted")
      end += told.entry ? fmt::format(R"(,"value":"{}")", *told.entry) : std::string{R"(,"value":null)"};
    record_.add(end + "}\n");
    if (told.verdict == "unavailable" || told.verdict == "unknown") std::this_thread::sleep_for(50ms);
    return told;
  }

  static std::int64_t number_in(const std::string& entry) {
    const auto begin = entry.find(' ') + 1;
    return parse_decimal(entry.substr(begin, entry.find(' ', begin) - begin)).value();
  }

  const Options options_;
  proof::Random random_;
  const Record record_;
  std::unique_ptr<TokenSource> source_;
  std::unique_ptr<Door> door_;
  int done_ = 0;
};

Options parse(int argc, char** argv) {
  std::map<std::string, std::string> words;
  Options options;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view{argv[i]} == "--unguarded")
      options.is_guarded = false;
    else if (i + 1 < argc)
      words[argv[i]] = argv[i + 1], ++i;
  }
  const auto number = [&](const char* name) { return std::stoll(words.at(name)); };
  options.storage = words.at("--storage");
  options.source = words.at("--source");
  options.record = words.at("--record");
  options.resources = words.at("--resources");
  options.process = static_cast<int>(number("--process"));
  options.operations = static_cast<int>(number("--operations"));
  options.count = static_cast<int>(number("--count"));
  options.pause = static_cast<int>(number("--pause"));
  options.seed = static_cast<std::uint64_t>(number("--seed"));
  options.ttl = std::chrono::milliseconds{number("--ttl-ms")};
  return options;
}

}  // namespace
}  // namespace fenceguard::campaign

int main(int argc, char** argv) {
  try {
    fenceguard::campaign::Client{fenceguard::campaign::parse(argc, argv)}.run();
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "campaign-client: {}\n", error.what());
    return 1;
  }
}
