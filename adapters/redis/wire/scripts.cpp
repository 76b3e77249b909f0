#include "adapters/redis/wire/scripts.hpp"

#include <initializer_list>

namespace fenceguard::redis {

extern const std::string_view lua_decimal, lua_draw, lua_lock, lua_fence, lua_exact;
extern const std::string_view lua_grant, lua_renew, lua_release, lua_end, lua_show, lua_raise, lua_draw_one,
    lua_by_hand, lua_lower;
extern const std::string_view lua_equal, lua_equal_one, lua_equal_run, lua_run_commands, lua_guarded;
extern const std::string_view lua_take, lua_line, lua_grant_in_line, lua_line_up, lua_leave, lua_free,
    lua_free_in_line;
extern const std::string_view lua_set_fence, lua_advance, lua_look, lua_revoke, lua_rebase, lua_lower_highest,
    lua_init, lua_compact, lua_evicting, lua_eviction, lua_functions, lua_unfenced;

namespace scripts {

const Script& grant() {
  static const Script script{with_full_memory, lua_decimal, lua_draw, lua_lock, lua_take, lua_grant};
  return script;
}
const Script& grant_in_line() {
  static const Script script{with_full_memory, lua_decimal, lua_draw,         lua_lock,
                             lua_take,         lua_line,    lua_grant_in_line};
  return script;
}
const Script& line_up() {
  static const Script script{with_full_memory, lua_lock, lua_line, lua_line_up};
  return script;
}
const Script& leave() {
  static const Script script{with_full_memory, lua_line, lua_leave};
  return script;
}
const Script& renew() {
  static const Script script{with_full_memory, lua_lock, lua_renew};
  return script;
}
const Script& release() {
  static const Script script{with_full_memory, lua_lock, lua_free, lua_release};
  return script;
}
const Script& release_in_line() {
  static const Script script{with_full_memory, lua_lock, lua_line, lua_free_in_line, lua_release};
  return script;
}
const Script& end() {
  static const Script script{with_full_memory, lua_lock, lua_free, lua_end};
  return script;
}
const Script& end_in_line() {
  static const Script script{with_full_memory, lua_lock, lua_line, lua_free_in_line, lua_end};
  return script;
}
const Script& show() {
  static const Script script{lua_lock, lua_show};
  return script;
}
const Script& raise() {
  static const Script script{with_full_memory, lua_decimal, lua_draw, lua_by_hand, lua_raise};
  return script;
}
const Script& lower() {
  static const Script script{with_full_memory, lua_decimal, lua_draw, lua_by_hand, lua_lower};
  return script;
}
const Script& draw_one() {
  static const Script script{with_full_memory, lua_decimal, lua_draw, lua_draw_one};
  return script;
}
namespace {

constexpr std::string_view for_server = "local is_cluster = false\n";
constexpr std::string_view for_cluster = "local is_cluster = true\n";

}  // namespace

const Script& guarded(bool is_cluster) {
  const auto make = [](std::string_view where) {
    return Script{where,       lua_exact, lua_run_commands, lua_equal,  lua_equal_run,
                  lua_decimal, lua_fence, lua_set_fence,    lua_guarded};
  };
  static const Script scripts[] = {make(for_server), make(for_cluster)};
  return scripts[is_cluster ? 1 : 0];
}
const Script& guarded_one(bool is_cluster) {
  const auto make = [](std::string_view where) {
    return Script{where,       lua_exact, lua_equal,     lua_equal_one, lua_run_commands,
                  lua_decimal, lua_fence, lua_set_fence, lua_guarded};
  };
  static const Script scripts[] = {make(for_server), make(for_cluster)};
  return scripts[is_cluster ? 1 : 0];
}
const Script& unfenced(bool is_cluster) {
  const auto make = [](std::string_view where) {
    return Script{where, lua_exact, lua_run_commands, lua_unfenced, lua_equal_run};
  };
  static const Script scripts[] = {make(for_server), make(for_cluster)};
  return scripts[is_cluster ? 1 : 0];
}
const Script& unfenced_one(bool is_cluster) {
  const auto make = [](std::string_view where) {
    return Script{where, lua_exact, lua_unfenced, lua_equal_one};
  };
  static const Script scripts[] = {make(for_server), make(for_cluster)};
  return scripts[is_cluster ? 1 : 0];
}
const Script& have_no_fence(bool is_cluster) {
  const auto make = [](std::string_view where) {
    return Script{where, lua_unfenced, "return redis.status_reply('OK')\n"};
  };
  static const Script scripts[] = {make(for_server), make(for_cluster)};
  return scripts[is_cluster ? 1 : 0];
}
const Script& advance() {
  static const Script script{with_full_memory, lua_decimal, lua_fence, lua_set_fence, lua_advance};
  return script;
}
const Script& look() {
  static const Script script{lua_decimal, lua_fence, lua_look};
  return script;
}
const Script& revoke() {
  static const Script script{with_full_memory, lua_decimal, lua_fence, lua_set_fence, lua_revoke};
  return script;
}
const Script& rebase() {
  static const Script script{with_full_memory, lua_decimal, lua_fence, lua_set_fence, lua_rebase};
  return script;
}
const Script& lower_highest() {
  static const Script script{with_full_memory, lua_decimal, lua_lower_highest};
  return script;
}
const Script& init() {
  static const Script script{with_full_memory, lua_decimal, lua_fence, lua_evicting, lua_init};
  return script;
}
const Script& compact() {
  static const Script script{with_full_memory, lua_decimal, lua_fence, lua_compact};
  return script;
}

const Script& eviction() {
  static const Script script{with_full_memory, lua_evicting, lua_eviction};
  return script;
}

std::string functions() {
  std::string text = "#!lua name=fenceguard\n";
  const auto add = [&](std::initializer_list<std::string_view> parts) {
    for (const auto part : parts) text.append(part);
  };
  add({"local version = '", functions_version(), "'\n", lua_decimal, lua_fence, lua_set_fence, lua_exact});
  add({"local function guarded(KEYS, ARGV, is_cluster)\n", lua_run_commands, lua_guarded, "end\n"});
  add({"local function advanced(KEYS, ARGV)\n", lua_advance, "end\n"});
  add({"local function looked(KEYS)\n", lua_look, "end\n", lua_functions});
  return text;
}
std::string_view functions_version() noexcept {
  return FENCEGUARD_VERSION;
}

}  // namespace scripts
}  // namespace fenceguard::redis
