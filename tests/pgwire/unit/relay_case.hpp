#pragma once

// RelayTest: what the tests of the relay share. Both sides of one, without a socket and without a server:
// each message is its type and what matters of its body.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "server/postgres/relay/relay.hpp"
#include "server/postgres/wire/message.hpp"

namespace fenceguard::pgwire::test {

struct Message {
  char type;
  std::string body;
  friend bool operator==(const Message&, const Message&) = default;
};
inline void PrintTo(const Message& message, std::ostream* out) {
  *out << message.type << '(' << testing::PrintToString(message.body) << ')';
}
using Messages = std::vector<Message>;

inline std::string bytes_of(const Messages& messages) {
  std::string out;
  for (const auto& message : messages) add_message(out, message.type, message.body);
  return out;
}

inline Messages messages_in(std::string& out) {
  Messages found;
  for (std::string_view rest = out; rest.size() >= header_bytes;) {
    const auto size = read_number(rest.substr(1)) + std::size_t{1};
    found.push_back({rest.front(), std::string{rest.substr(header_bytes, size - header_bytes)}});
    rest.remove_prefix(std::min(rest.size(), size));
  }
  out.clear();
  return found;
}

inline std::string text(std::initializer_list<std::string_view> parts) {
  std::string body;
  for (const auto part : parts) add_text(body, part);
  return body;
}

inline Message query(std::string_view sql) {
  return {'Q', text({sql})};
}
inline Message parse(std::string_view name, std::string_view sql) {
  return {'P', text({name, sql}) + std::string(2, '\0')};
}
inline Message bind(std::string_view portal, std::string_view name) {
  return {'B', text({portal, name}) + std::string(6, '\0')};
}
inline Message execute(std::string_view portal = "") {
  return {'E', text({portal}) + std::string(4, '\0')};
}
inline Message close(char what, std::string_view name) {
  return {'C', what + text({name})};
}
inline const Message sync{'S', ""};
constexpr std::string_view own_name = "fenceguard admission";
// A statement for transactions under a name of the client's, which never reaches the server under it.
inline Messages bind_of_special(std::string_view sql) {
  return {parse(own_name, sql), bind(std::string_view{}, own_name), close('S', own_name)};
}
inline const Messages special_parsed{{'1', ""}, {'3', ""}, {'1', ""}};
inline Message ready(char status) {
  return {'Z', std::string(1, status)};
}
inline Message done(std::string_view tag) {
  return {'C', text({tag})};
}
inline Message parameter(std::string_view name, std::string_view value) {
  return {'S', text({name, value})};
}
inline Message error(std::string_view state, std::string_view position = "",
                     std::string_view severity = "ERROR") {
  std::string body = "V" + text({severity}) + "C" + text({state}) + "M" + text({"no"});
  if (!position.empty()) body += "P" + text({position});
  return {'E', body + std::string(1, '\0')};
}

struct Observer : RelayObserver {
  void ruled(const char* operation, const Claim& /*claim*/, Verdict verdict, std::int64_t highest) override {
    told.push_back(fmt::format("{} {} {}", operation, to_string(verdict), highest));
  }
  void failed(const char* operation, const Claim& /*claim*/, const Fault& fault) override {
    told.push_back(fmt::format("{} {}", operation, to_string(fault.kind)));
  }
  void missing() override { told.emplace_back("missing"); }
  void not_signed(const Claim& /*claim*/) override { told.emplace_back("not signed"); }
  void is_standby() override { told.emplace_back("standby"); }
  std::vector<std::string> told;
};

// What is handed over for the claim of 'fenced', and the statement with its digest.
constexpr std::string_view handed =
    R"(00000000000000000000000000000000[{"resource":"a","token":"7","holder":"h"}])";
constexpr std::string_view admission =
    "SELECT fenceguard.confirm_relayed('53473d3fcb7e8add3ad308bb236cc3d3"
    "a952a097664f4480bf6a5ff5484875bf')";
inline const std::string fenced =
    "-c fenceguard.session_claims=[{\"resource\":\"a\",\"token\":\"7\",\"holder\":\"h\"}]";

class RelayTest : public testing::Test {
 protected:
  void begin(const std::string& options_of_client, const std::vector<Claim>& claims = {}) {
    Startup startup{.kind = Startup::Kind::start, .version = 3 << 16};
    startup.parameters = {{"user", "u"}};
    if (!options_of_client.empty()) startup.parameters.emplace_back("options", options_of_client);
    relay = std::make_unique<Relay>(options, observer, std::move(startup), claims);
    started = relay->to_server();
    relay->to_server().clear();
  }
  void greet() {
    server({{'R', std::string(4, '\0')},
            parameter("server_version", "15.4"),
            parameter("client_encoding", "UTF8"),
            parameter("standard_conforming_strings", "on"),
            parameter("default_transaction_read_only", "on"),
            ready('I')});
  }
  // A session with a claim that is ready.
  void begin_fenced() {
    begin(fenced);
    get_ready();
  }
  void get_ready() {
    greet();
    (void)messages_in(relay->to_server());
    server({done("BEGIN"), {'T', ""}, row({"admitted", "7"}), done("SELECT 1"), done("COMMIT"), ready('I')});
    (void)messages_in(relay->to_client());
    ASSERT_TRUE(relay->is_ready());
  }
  static Message row(std::initializer_list<std::string_view> values) {
    std::string body(2, '\0');
    for (const auto value : values) {
      add_number(body, static_cast<std::uint32_t>(value.size()));
      body += value;
    }
    return {'D', body};
  }
  void client(const Messages& messages) { relay->from_client(bytes_of(messages)); }
  void server(const Messages& messages) { relay->from_server(bytes_of(messages)); }
  Messages sent() { return messages_in(relay->to_server()); }
  Messages told() { return messages_in(relay->to_client()); }
  // What the server gets ahead of the first message of a transaction, in the extended protocol.
  static Messages opening() {
    Messages all;
    for (const auto sql : {std::string_view{"SET TRANSACTION READ WRITE"}, admission}) {
      for (auto& message : own(sql)) all.push_back(std::move(message));
    }
    all.push_back(close('P', ""));
    return all;
  }
  static Messages own(std::string_view sql) {
    return {parse("fenceguard admission", sql), bind("", "fenceguard admission"), execute(),
            close('S', "fenceguard admission")};
  }
  static Messages own_answers(std::string_view tag) { return {{'1', ""}, {'2', ""}, done(tag), {'3', ""}}; }
  static Messages opening_answers() {
    Messages all = own_answers("SET");
    all.insert(all.begin() + 2,
               {'N', "V" + text({"WARNING"}) + "C" + text({"25P01"}) + std::string(1, '\0')});
    const Messages rest{{'1', ""}, {'2', ""}, {'D', "x"}, done("SELECT 1"), {'3', ""}, {'3', ""}};
    all.insert(all.end(), rest.begin(), rest.end());
    return all;
  }
  static Messages joined(Messages first, const Messages& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
  }
  // Of the block around a CALL that failed.
  static Messages own_rollback() {
    return joined({close('S', own_name), close('P', "")}, joined(own("ROLLBACK"), {sync}));
  }
  static Messages own_rollback_answers() {
    return joined({{'3', ""}, {'3', ""}}, joined(own_answers("ROLLBACK"), {ready('I')}));
  }
  std::string ended_with() {
    const auto messages = told();
    if (messages.empty() || messages.back().type != 'E' || !relay->is_over()) return "";
    return std::string{field_of(messages.back().body, 'C').value_or("")};
  }

  RelayOptions options{.draw_nonce = [] { return std::string(32, '0'); }};
  Observer observer;
  std::unique_ptr<Relay> relay;
  std::string started;
};

}  // namespace fenceguard::pgwire::test
