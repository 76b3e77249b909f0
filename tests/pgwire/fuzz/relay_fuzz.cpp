// A client that says anything, and a server that does as PostgreSQL does (model_server.hpp) and fails where
// the input says so, with the relay between. The server aborts where something is written in a transaction
// that was not admitted. The client gets whole messages, and is ready no more often than it asked for; what
// leaves is bounded by what came; a relay neither hangs nor finds a server that keeps the protocol out of
// step. In a tenth of the inputs the server says anything, too: then only crashes and bounds are looked for.
//
// The input: a byte of options, then steps. Run by libFuzzer (FENCEGUARD_FUZZ), and over the kept corpus.

#include <array>
#include <cstdint>
#include <string>

#include "server/postgres/relay/relay.hpp"
#include "server/postgres/wire/message.hpp"
#include "tests/pgwire/fuzz/model_server.hpp"
#include "tests/proof/fuzz/input.hpp"

namespace fenceguard::pgwire::test {
namespace {

constexpr std::size_t own_bytes_max = 2'048;  // that the relay adds to one message of the client's

Startup startup_of(bool has_claim) {
  Startup startup{.kind = Startup::Kind::start, .version = 3 << 16};
  startup.parameters = {{"user", "u"}};
  if (has_claim)
    startup.parameters.emplace_back("fenceguard.session_claims",
                                    R"([{"resource":"a","token":"7","holder":"h"}])");
  return startup;
}

class Play {
 public:
  explicit Play(fenceguard::test::Input& input)
      : input_{input},
        options_byte_{input.byte()},
        relay_{options_, observer_, startup_of((options_byte_ & 1) == 0)} {
    answers_ready_max_ = 1;
    settle();
  }

  void step() {
    const auto what = input_.byte();
    switch (what % 16) {
      case 0:
        say_to_relay(input_.text());
        break;
      case 1:
        serve();
        break;
      case 2:
      case 3:
        deliver(input_.byte());
        break;
      case 4:
      case 5:
        settle();
        break;
      case 6:
        if (is_hostile()) pending_ += input_.text();
        break;
      default:
        say_to_relay(message(what));
    }
    check();
  }

  // What there is to be answered is, and nothing is kept back for ever.
  void finish() {
    if (is_hostile()) return;
    settle();
    for (int i = 0; i < 3 && !relay_.has_relayed_all(); ++i) {
      say_to_relay(bytes_of('c', {}) + bytes_of('S', {}));
      settle();
    }
    check();
    if (!relay_.is_over() && !server_.is_over() && !relay_.has_relayed_all() && !is_broken_)
      violated("the relay keeps back what it was sent", "");
  }

 private:
  [[nodiscard]] bool is_hostile() const { return options_byte_ % 10 == 9; }

  static std::string bytes_of(char type, std::string_view body) {
    std::string bytes;
    add_message(bytes, type, body);
    return bytes;
  }

  std::string name() {
    static constexpr std::array<std::string_view, 4> names{"", "", "s", "p"};
    return std::string{names[input_.byte() % names.size()]};
  }

  std::string sql() {
    const auto& texts = known_texts();
    const auto choice = input_.byte();
    auto text = texts[choice % texts.size()];
    for (auto more = choice / 64; more > 1; --more) text += ";" + texts[input_.byte() % texts.size()];
    return text;
  }

  // Parsed, bound and executed at once is the commonest.
  std::string message(unsigned what) {
    std::string body;
    switch (what % 16) {
      case 7:
      case 8:
        add_text(body, sql());
        return bytes_of('Q', body);
      case 9:
      case 10: {
        const auto of = input_.byte() % 4 == 0 ? name() : std::string{};
        std::string all;
        add_parse(all, of, sql());
        add_bind(all, of);
        add_execute(all);
        return (what & 16) != 0 ? all + bytes_of('S', {}) : all;
      }
      case 11: {
        std::string all;
        const auto of = name();
        add_parse(all, of, sql());
        return all;
      }
      case 12:
        add_text(body, name());
        add_text(body, name());
        return bytes_of('B', body.append(6, '\0'));
      case 13:
        add_text(body, name());
        return bytes_of('E', body.append(4, '\0'));
      case 14:
        body.push_back((what & 16) != 0 ? 'S' : 'P');
        add_text(body, name());
        return bytes_of((what & 32) != 0 ? 'D' : 'C', body);
      default: {
        constexpr std::string_view others = "SSSSHdcfFX";
        const char type = others[(what >> 4) % others.size()];
        return bytes_of(type, type == 'd' || type == 'F' ? std::string_view{"xyz"}
                              : type == 'f'              ? std::string_view{"\0", 1}
                                                         : std::string_view{});
      }
    }
  }

  void say_to_relay(const std::string& bytes) {
    if (!relay_.takes_client() || said_bytes_ > 65'536) return;
    said_bytes_ += bytes.size() + own_bytes_max;
    for (std::string_view rest = bytes; !rest.empty();) {
      if (rest.size() < header_bytes) {
        is_broken_ = true;
        break;
      }
      if (rest.front() == 'S' || rest.front() == 'Q' || rest.front() == 'F') ++answers_ready_max_;
      const auto size = read_number(rest.substr(1)) + std::size_t{1};
      is_broken_ = is_broken_ || size > rest.size();
      rest.remove_prefix(std::min(rest.size(), size));
    }
    relay_.from_client(bytes);
    take_sent();
  }

  void take_sent() {
    sent_bytes_ += relay_.to_server().size();
    if (sent_bytes_ > 2 * said_bytes_ + 65'536) violated("more leaves than came", "");
    to_serve_ += std::exchange(relay_.to_server(), {});
  }

  void serve() {
    take_sent();
    if (relay_.is_over() || server_.is_over()) return;
    server_.take(std::exchange(to_serve_, {}), pending_);
  }

  void deliver(std::size_t bytes) {
    const auto part = pending_.substr(0, bytes);
    pending_.erase(0, part.size());
    relay_.from_server(part);
    take_sent();
  }

  void settle() {
    for (int i = 0; i < 100; ++i) {
      serve();
      if (pending_.empty()) break;
      deliver(pending_.size());
    }
  }

  void check() {
    auto& told = relay_.to_client();
    told_ += std::exchange(told, {});
    std::string_view rest = told_;
    while (rest.size() >= header_bytes) {
      const auto size = read_number(rest.substr(1)) + std::size_t{1};
      if (rest.size() < size) break;
      if (!is_hostile()) check_message(rest.substr(0, size));
      rest.remove_prefix(size);
    }
    told_ = std::string{rest};
    if (told_.size() > 65'536 + 1'024) violated("the client is told without end", "");
  }

  void check_message(std::string_view message) {
    if (message.front() == 'Z' && ++answers_ready_ > answers_ready_max_ && !is_broken_)
      violated("it is ready more often than it was asked", message);
    if (message.front() != 'E') return;
    const auto why = field_of(message.substr(header_bytes), 'M').value_or("");
    if (why.find("out of step") != std::string_view::npos ||
        why.find("the scanner does not") != std::string_view::npos)
      violated("a server that keeps the protocol is found at fault", why);
  }

  fenceguard::test::Input& input_;
  const std::uint8_t options_byte_;
  RelayOptions options_;
  SilentObserver observer_;
  Relay relay_;
  ModelServer server_{[this] { return !input_.empty() && (input_.byte() & 15) == 15; }};
  std::string to_serve_, pending_, told_;
  std::size_t said_bytes_ = 0, sent_bytes_ = 0;
  std::size_t answers_ready_ = 0, answers_ready_max_ = 0;
  bool is_broken_ = false;  // the client sent half a message, or none
};

}  // namespace
}  // namespace fenceguard::pgwire::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 4'096) return -1;
  fenceguard::test::Input input{data, size};
  fenceguard::pgwire::test::Play play{input};
  while (!input.empty()) play.step();
  play.finish();
  return 0;
}
