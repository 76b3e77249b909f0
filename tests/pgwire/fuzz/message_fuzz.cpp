// What is read of one message of either side: any bytes are startups, claims, errors and texts. Nothing
// crashes; what is made of what was read is read alike; and a stream means the same however it is cut.
//
// The input: a byte that says what it is taken for, then the bytes.

#include <algorithm>
#include <cstdint>
#include <string>

#include "guard/error.hpp"
#include "server/postgres/relay/relay.hpp"
#include "server/postgres/relay/startup.hpp"
#include "server/postgres/relay/statements.hpp"
#include "server/postgres/wire/message.hpp"
#include "tests/pgwire/fuzz/model_server.hpp"
#include "tests/proof/fuzz/input.hpp"

namespace fenceguard::pgwire::test {
namespace {

void read_as_startup(std::string_view bytes) {
  auto startup = read_startup(bytes);
  if (startup.kind != Startup::Kind::start) return;
  if (startup.size > bytes.size()) violated("a startup longer than its bytes", bytes);
  const auto again = read_startup(startup.encode());
  if (again.parameters != startup.parameters) violated("a startup is not read as it was written", bytes);
  const auto given = take_claims(startup);
  if (take_claims(startup)) violated("a claim was left in the startup", bytes);
  try {
    if (given) (void)read_claims(*given);
  } catch (const InvalidInput&) {
    return;  // a sentence for the client
  }
  const RelayOptions options;
  SilentObserver observer;
  Relay relay{options, observer, read_startup(bytes)};
  if (!relay.is_over() && relay.to_server().find("default_transaction_read_only") == std::string::npos)
    violated("a session is not read-only", bytes);
}

void read_as_claims(std::string_view bytes) {
  try {
    const auto claims = read_claims(bytes);
    const auto again = read_claims(write_claims(claims));
    if (!std::ranges::equal(claims, again, {}, &SignedClaim::claim, &SignedClaim::claim))
      violated("claims are not read as they were written", bytes);
  } catch (const InvalidInput&) {
    return;
  }
}

void read_as_error(std::string_view body, std::size_t shift) {
  for (const char code : {'V', 'C', 'M', 'P'}) {
    const auto field = field_of(body, code);
    if (field && field->size() > body.size()) violated("a field longer than its error", body);
  }
  const auto changed = without_shift(body, {shift, shift / 2});
  if (changed.size() > body.size() + 20) violated("an error grew", body);
  if (field_of(with_hint(changed, "hint"), 'M') != field_of(changed, 'M'))
    violated("a hint changed an error", body);
}

// Statements are counted alike whether text of ours stands in front or not.
void read_as_text(const std::string& text) {
  if (text.find('\0') != std::string::npos) return;
  const auto found = classify_statements(text);
  if (found.is_broken) return;
  const auto behind = classify_statements("SELECT 1;" + text);
  if (behind.is_broken || behind.count != found.count + 1)
    violated("other statements behind one of ours", text);
  if (behind.has_control != found.has_control) violated("control is seen or not by where it stands", text);
}

// The same bytes of both sides, whole and byte by byte.
void read_in_parts(std::string_view bytes) {
  const auto half = bytes.size() / 2;
  std::string told[2], sent[2];
  const RelayOptions options;
  SilentObserver observer;
  for (const bool is_cut : {false, true}) {
    Startup startup{.kind = Startup::Kind::start, .version = 3 << 16};
    startup.parameters = {{"user", "u"}};
    Relay relay{options, observer, startup};
    std::string greeting;
    add_message(greeting, 'R', std::string_view{"\0\0\0\0", 4});
    for (const std::string_view parameter : {std::string_view{"server_version\0"
                                                              "15.4\0",
                                                              20},
                                             std::string_view{"default_transaction_read_only\0on\0", 33}})
      add_message(greeting, 'S', parameter);
    add_message(greeting, 'Z', "I");
    relay.from_server(greeting);
    if (!relay.is_ready()) violated("the relay is not ready", "");
    const auto client = bytes.substr(0, half), server = bytes.substr(half);
    const auto step = is_cut ? std::size_t{1} : bytes.size() + 1;
    for (std::size_t at = 0; at < client.size(); at += step) relay.from_client(client.substr(at, step));
    for (std::size_t at = 0; at < server.size(); at += step) relay.from_server(server.substr(at, step));
    if (relay.is_over()) return;  // what came before its end may have passed in part
    told[is_cut ? 1 : 0] = relay.to_client();
    sent[is_cut ? 1 : 0] = relay.to_server();
  }
  if (told[0] != told[1] || sent[0] != sent[1]) violated("what comes in parts means something else", bytes);
}

}  // namespace
}  // namespace fenceguard::pgwire::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fenceguard::pgwire::test;
  if (size < 2 || size > 4'096) return -1;
  const std::string_view bytes{reinterpret_cast<const char*>(data) + 1, size - 1};
  switch (data[0] % 5) {
    case 0:
      read_as_startup(bytes);
      break;
    case 1:
      read_as_claims(bytes);
      break;
    case 2:
      read_as_error(std::string{bytes} + std::string(2, '\0'), data[0]);
      break;
    case 3:
      read_as_text(std::string{bytes});
      break;
    default:
      read_in_parts(bytes);
  }
  return 0;
}
