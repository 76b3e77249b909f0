#include "server/resp/relay/login.hpp"

#include <openssl/crypto.h>

#include <charconv>

#include "guard/support/text.hpp"
#include "server/resp/wire/reply.hpp"

namespace fenceguard::resp {
namespace {

std::string error(std::string_view text) {
  std::string bytes;
  add_error(bytes, text);
  return bytes;
}

// Redis's own words begin with a code; a sentence of ours tells that it could not be asked.
std::string fault_of_binding(std::string_view text) {
  const bool has_code =
      text.size() > 1 && text[0] >= 'A' && text[0] <= 'Z' && text[1] >= 'A' && text[1] <= 'Z';
  return error(has_code ? std::string{text} : "UNAVAILABLE " + std::string{text});
}

bool is_equal_in_same_time(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace

Login::Login(const RelayContext& context)
    : context_{context},
      identity_{context.options.identity},
      database_{context.options.database},
      is_let_in_{context.options.data_password.empty()} {}

void Login::bind(Binding binding) {
  binding_ = std::move(binding);
  context_.redis.bind(binding_->identity, binding_->database);
}

void Login::begin_binding() {
  bind({identity_, database_, false, {}, false});
}

std::optional<std::string> Login::log_in(Identity identity, bool says_hello) {
  if (!context_.options.data_password.empty()) {
    const bool is_known = (identity.user.empty() || identity.user == "default") &&
                          is_equal_in_same_time(identity.password, context_.options.data_password);
    if (!is_known) return error("WRONGPASS invalid username-password pair or user is disabled.");
    is_let_in_ = true;
    return says_hello ? hello_text() : std::string{ok_reply};
  }
  if (context_.options.lends_identity)
    return error(
        "ERR AUTH <password> called without any password configured for the default user. Are you sure your "
        "configuration is correct?");
  bind({std::move(identity), database_, true, std::string{ok_reply}, says_hello});
  return std::nullopt;
}

std::optional<std::string> Login::auth(redis::Arguments words) {
  if (words.size() < 2) return error("ERR wrong number of arguments for 'auth' command");
  if (words.size() > 3) return error("ERR syntax error");
  const bool has_user = words.size() == 3;
  return log_in({std::string{has_user ? words[1] : std::string_view{}}, std::string{words.back()}}, false);
}

std::optional<std::string> Login::hello(redis::Arguments words, std::string& name) {
  // RESP3 is not spoken. Clients fall back where the command is not known, and some give up at NOPROTO.
  if (words.size() > 1 && words[1] != "2") {
    int version = 0;
    const auto* end = words[1].data() + words[1].size();
    const auto read = std::from_chars(words[1].data(), end, version);
    if (read.ec != std::errc{} || read.ptr != end)
      return error("ERR Protocol version is not an integer or out of range");
    if (version == 3) return error("ERR unknown command 'HELLO', with args beginning with: '3' ");
    return error("NOPROTO unsupported protocol version");
  }
  std::optional<Identity> identity;
  std::optional<std::string> new_name;
  for (std::size_t i = 2; i < words.size();) {
    const auto left = words.size() - i - 1;
    if (equals_ignoring_case(words[i], "AUTH") && left >= 2) {
      identity = Identity{std::string{words[i + 1]}, std::string{words[i + 2]}};
      i += 3;
    } else if (equals_ignoring_case(words[i], "SETNAME") && left >= 1) {
      new_name = words[i + 1];
      i += 2;
    } else {
      return error("ERR Syntax error in HELLO option '" + std::string{words[i]} + "'");
    }
  }
  if (identity) {
    auto answer = log_in(*std::move(identity), true);
    if (new_name && (!answer || !answer->starts_with('-'))) name = *std::move(new_name);
    return answer;
  }
  if (!is_let_in())
    return error(
        "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH "
        "<user> <pass> option can be used to authenticate the client and select the RESP protocol version at "
        "the same time");
  if (new_name) name = *std::move(new_name);
  return hello_text();
}

std::string Login::hello_text() const {
  std::string text;
  add_array(text, 14);
  add_bulk(text, "server");
  add_bulk(text, "redis");
  add_bulk(text, "version");
  add_bulk(text, context_.redis.server_version());
  add_bulk(text, "proto");
  add_integer(text, "2");
  add_bulk(text, "id");
  add_integer(text, std::to_string(context_.client.connection_number()));
  add_bulk(text, "mode");
  add_bulk(text, "standalone");
  add_bulk(text, "role");
  add_bulk(text, "master");
  add_bulk(text, "modules");
  add_array(text, 0);
  return text;
}

std::optional<std::string> Login::select(redis::Arguments words) {
  if (words.size() != 2) return error("ERR wrong number of arguments for 'select' command");
  int number = 0;
  const auto* end = words[1].data() + words[1].size();
  const auto read = std::from_chars(words[1].data(), end, number);
  if (read.ec != std::errc{} || read.ptr != end) return error("ERR value is not an integer or out of range");
  if (number < 0) return error("ERR DB index is out of range");
  if (number == database_) return std::string{ok_reply};
  if (context_.redis.is_cluster()) return error("ERR SELECT is not allowed in cluster mode");
  bind({identity_, number, false, std::string{ok_reply}, false});
  return std::nullopt;
}

bool Login::reset(std::string success) {
  is_let_in_ = context_.options.data_password.empty();
  const bool is_same = identity_ == context_.options.identity && database_ == context_.options.database;
  if (is_same && is_bound_) return false;
  bind({context_.options.identity, context_.options.database, false, std::move(success), false, true});
  return true;
}

std::string Login::bound(std::string_view text, bool needs_password) {
  if (!binding_) return {};
  const auto binding = *std::move(binding_);
  binding_.reset();
  if (!text.empty()) {
    const bool is_first = binding.success.empty();
    if (is_first) is_bound_ = false;
    return is_first ? std::string{} : fault_of_binding(text);
  }
  if (binding.is_login && needs_password)
    return error("WRONGPASS invalid username-password pair or user is disabled.");
  identity_ = binding.identity;
  database_ = binding.database;
  needs_password_ = needs_password;
  is_bound_ = true;
  return binding.says_hello ? hello_text() : binding.success;
}

}  // namespace fenceguard::resp
