#include "tests/pgwire/fuzz/model_server.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "server/postgres/relay/startup.hpp"
#include "server/postgres/wire/message.hpp"

namespace fenceguard::pgwire::test {

enum class ModelServer::Meaning : std::uint8_t {
  nothing,
  begin,
  begin_read_only,
  begin_read_write,
  commit,
  rollback,
  commit_and_chain,
  rollback_and_chain,
  savepoint,
  rollback_to,
  read_write,
  read_only,
  admit,
  insert,
  select,
  set,
  default_off,
  commit_inside,
  prepare,
  execute,
  deallocate,
  deallocate_all,
  discard_all,
  copy_in,
  vacuum,
  never
};

const std::map<std::string, ModelServer::Meaning, std::less<>>& ModelServer::meanings() {
  static const std::map<std::string, Meaning, std::less<>> known{
      {"begin", Meaning::begin},
      {"BEGIN", Meaning::begin},
      {"begin read only", Meaning::begin_read_only},
      {"start transaction read write", Meaning::begin_read_write},
      {"commit", Meaning::commit},
      {"COMMIT", Meaning::commit},
      {"/* a */ end", Meaning::commit},
      {"rollback", Meaning::rollback},
      {"ROLLBACK", Meaning::rollback},
      {"commit and chain", Meaning::commit_and_chain},
      {"abort and chain", Meaning::rollback_and_chain},
      {"savepoint a", Meaning::savepoint},
      {"rollback to a", Meaning::rollback_to},
      {"set transaction read write", Meaning::read_write},
      {"SET TRANSACTION READ WRITE", Meaning::read_write},
      {"set transaction_read_only = off", Meaning::read_write},
      {"set transaction read only", Meaning::read_only},
      {"SET TRANSACTION READ ONLY", Meaning::read_only},
      {"insert", Meaning::insert},
      {"select 1", Meaning::select},
      {"SELECT 1", Meaning::select},
      {"set a = 1", Meaning::set},
      {"show a", Meaning::set},
      {"select set_config('default_transaction_read_only', 'off', false)", Meaning::default_off},
      {"do 'commit'", Meaning::commit_inside},
      {"call commits()", Meaning::commit_inside},
      {"prepare s as insert", Meaning::prepare},
      {"execute s", Meaning::execute},
      {"deallocate s", Meaning::deallocate},
      {"deallocate all", Meaning::deallocate_all},
      {"discard all", Meaning::discard_all},
      {"copy t from stdin", Meaning::copy_in},
      {"vacuum", Meaning::vacuum},
      {R"(ROLLBACK TO "EXECUTE of a statement for transactions is refused")", Meaning::never}};
  return known;
}

const std::vector<std::string>& known_texts() {
  static const std::vector<std::string> texts{
      "begin",
      "begin read only",
      "start transaction read write",
      "commit",
      "rollback",
      "/* a */ end",
      "commit and chain",
      "abort and chain",
      "savepoint a",
      "rollback to a",
      "set transaction read write",
      "set transaction_read_only = off",
      "insert",
      "select 1",
      "set transaction read only",
      "set a = 1",
      "show a",
      "call commits()",
      "prepare s as insert",
      "do 'commit'",
      "execute s",
      "deallocate s",
      "deallocate all",
      "copy t from stdin",
      "discard all",
      "vacuum",
      "nothing that it knows",
      "",
      "'",
      "select set_config('default_transaction_read_only', 'off', false)"};
  return texts;
}

// Nothing where one of them is not known, as where the whole text cannot be parsed.
std::optional<std::vector<ModelServer::Meaning>> ModelServer::read(std::string_view text) {
  std::vector<Meaning> found;
  while (!text.empty()) {
    const auto end = std::min(text.find(';'), text.size());
    auto one = text.substr(0, end);
    text.remove_prefix(std::min(text.size(), end + 1));
    while (one.starts_with(' ')) one.remove_prefix(1);
    if (one.empty()) continue;
    const auto known = meanings().find(one);
    if (one.starts_with("SELECT fenceguard.confirm_relayed(")) {
      found.push_back(Meaning::admit);
    } else if (known == meanings().end()) {
      return std::nullopt;
    } else {
      found.push_back(known->second);
    }
  }
  return found;
}

void ModelServer::say(char type, std::string_view body) {
  add_message(*out_, type, body);
}

void ModelServer::tag(std::string_view text) {
  std::string body;
  add_text(body, text);
  say('C', body);
}

void ModelServer::take(std::string_view bytes, std::string& answers) {
  in_.append(bytes);
  out_ = &answers;
  std::string_view rest = in_;
  if (!is_started_ && !rest.empty()) {
    const auto startup = read_startup(rest);
    if (startup.kind != Startup::Kind::start) violated("the server got no startup message", rest);
    const auto* setting = startup.find("default_transaction_read_only");
    if (setting == nullptr || *setting != "on") violated("a session is not read-only", rest);
    rest.remove_prefix(startup.size);
    is_started_ = true;
    say('R', std::string_view{"\0\0\0\0", 4});
    constexpr std::pair<const char*, const char*> parameters[] = {{"server_version", "15.4"},
                                                                  {"client_encoding", "UTF8"},
                                                                  {"standard_conforming_strings", "on"},
                                                                  {"default_transaction_read_only", "on"}};
    for (const auto& [name, value] : parameters) {
      std::string body;
      add_text(body, name);
      add_text(body, value);
      say('S', body);
    }
    ready();
  }
  while (!is_over_ && rest.size() >= header_bytes) {
    const auto size = read_number(rest.substr(1)) + std::size_t{1};
    if (rest.size() < size) break;
    take_message(rest.front(), rest.substr(header_bytes, size - header_bytes));
    rest.remove_prefix(size);
  }
  in_ = std::string{rest};
}

void ModelServer::ready() {
  if (default_told_ != default_read_only_) {
    std::string body;
    add_text(body, "default_transaction_read_only");
    add_text(body, default_read_only_ ? "on" : "off");
    say('S', body);
    default_told_ = default_read_only_;
  }
  const char status = !transaction_ ? 'I' : transaction_->is_aborted ? 'E' : 'T';
  say('Z', {&status, 1});
}

void ModelServer::start() {
  if (!transaction_)
    transaction_ = Transaction{.is_read_only = default_read_only_, .default_before = default_read_only_};
}

void ModelServer::end(bool commits) {
  if (transaction_ && !commits) default_read_only_ = transaction_->default_before;
  transaction_.reset();
  portals_.clear();
}

bool ModelServer::fail(const char* state) {
  std::string body = "V";
  add_text(body, "ERROR");
  body += 'C';
  add_text(body, state);
  body += 'M';
  add_text(body, "no");
  body.push_back('\0');
  say('E', body);
  if (transaction_ && transaction_->is_block) {
    transaction_->is_aborted = true;
    default_read_only_ = transaction_->default_before;
  } else {
    end(false);
  }
  is_copying_ = false;
  return false;
}

bool ModelServer::is_allowed(Meaning meaning) const {
  constexpr Meaning always[] = {Meaning::nothing,
                                Meaning::commit,
                                Meaning::rollback,
                                Meaning::commit_and_chain,
                                Meaning::rollback_and_chain,
                                Meaning::rollback_to,
                                Meaning::never};
  return !transaction_ || !transaction_->is_aborted || std::ranges::find(always, meaning) != std::end(always);
}

bool ModelServer::set_mode(bool is_read_only) {
  auto& now = *transaction_;
  if (!is_read_only && now.is_read_only && (now.has_snapshot || !now.savepoints.empty()))
    return fail("25001");
  now.is_read_only = is_read_only;
  return true;
}

bool ModelServer::write() {
  transaction_->has_snapshot = true;
  if (transaction_->is_read_only) return fail("25006");
  if (!transaction_->is_admitted) violated("something is written that was not admitted", "");
  return true;
}

bool ModelServer::run_chain() {
  if (!transaction_->is_block) return fail("25P01");
  const bool is_read_only = transaction_->is_aborted ? default_read_only_ : transaction_->is_read_only;
  end(!transaction_->is_aborted);
  start();
  transaction_->is_block = true;
  transaction_->is_read_only = is_read_only;
  tag("COMMIT");
  return true;
}

// What begins and ends transactions, and sets how they are.
bool ModelServer::run_control(Meaning meaning) {
  auto& now = *transaction_;
  switch (meaning) {
    case Meaning::begin:
    case Meaning::begin_read_only:
    case Meaning::begin_read_write:
      now.is_block = true;
      if (meaning != Meaning::begin && !set_mode(meaning == Meaning::begin_read_only)) return false;
      tag("BEGIN");
      return true;
    case Meaning::commit:
    case Meaning::rollback: {
      const bool commits = meaning == Meaning::commit && !now.is_aborted;
      end(commits);
      tag(commits ? "COMMIT" : "ROLLBACK");
      return true;
    }
    case Meaning::savepoint:
      if (!now.is_block) return fail("25P01");
      now.savepoints.emplace_back(now.is_read_only, now.is_admitted);
      tag("SAVEPOINT");
      return true;
    case Meaning::rollback_to:
      if (!now.is_block || now.savepoints.empty()) return fail("3B001");
      now.is_aborted = false;
      std::tie(now.is_read_only, now.is_admitted) = now.savepoints.back();
      tag("ROLLBACK");
      return true;
    case Meaning::read_write:
    case Meaning::read_only:
      if (!set_mode(meaning == Meaning::read_only)) return false;
      tag("SET");
      return true;
    default:
      return run_chain();
  }
}

// What runs in no block, and commits by itself.
bool ModelServer::run_alone(Meaning meaning, bool is_top_level) {
  const bool is_atomic = transaction_->is_block || is_several_ || !is_top_level;
  if (meaning == Meaning::commit_inside) {
    transaction_->has_snapshot = true;
    if (!is_atomic) violated("a procedure commits, and writes in the transaction behind it", "");
    return fail("2D000");
  }
  if (is_atomic || transaction_->has_run) return fail("25001");
  if (meaning == Meaning::discard_all) {
    statements_.clear();
    default_read_only_ = true;
  }
  tag(meaning == Meaning::discard_all ? "DISCARD ALL" : "VACUUM");
  ends_at_once_ = true;
  return true;
}

bool ModelServer::run_named(Meaning meaning) {
  const auto found = statements_.find("s");
  const bool is_there = found != statements_.end();
  transaction_->has_snapshot = true;
  switch (meaning) {
    case Meaning::prepare:
      if (is_there) return fail("42P05");
      statements_.emplace("s", Meaning::insert);
      tag("PREPARE");
      return true;
    case Meaning::execute:
      if (!is_there || found->second == Meaning::execute) return fail("26000");
      if (found->second == Meaning::copy_in || found->second == Meaning::nothing) return fail("0A000");
      return run(found->second, false);
    case Meaning::deallocate:
      if (!is_there) return fail("26000");
      statements_.erase(found);
      tag("DEALLOCATE");
      return true;
    default:
      statements_.clear();
      tag("DEALLOCATE ALL");
      return true;
  }
}

bool ModelServer::run(Meaning meaning, bool is_top_level) {
  if (!is_allowed(meaning)) return fail("25P02");
  start();
  const bool is_sure = meaning <= Meaning::rollback && meaning != Meaning::nothing;
  if (!is_sure && chance_()) return fail(meaning == Meaning::admit ? "ZF001" : "XX000");
  switch (meaning) {
    case Meaning::nothing:
      say('I');
      return true;
    case Meaning::admit:
      transaction_->is_admitted = transaction_->has_snapshot = true;
      break;
    case Meaning::insert:
      if (!write()) return false;
      break;
    case Meaning::default_off:
      default_read_only_ = false;
      transaction_->has_snapshot = true;
      break;
    case Meaning::select:
      transaction_->has_snapshot = true;
      break;
    case Meaning::set:
      break;
    case Meaning::copy_in:
      if (!write()) return false;
      is_copying_ = true;
      say('G', std::string_view{"\0\0\0", 3});
      return true;
    case Meaning::never:
      return fail("3B001");
    case Meaning::commit_inside:
    case Meaning::discard_all:
    case Meaning::vacuum:
      return run_alone(meaning, is_top_level);
    case Meaning::prepare:
    case Meaning::execute:
    case Meaning::deallocate:
    case Meaning::deallocate_all:
      return run_named(meaning);
    default:
      return run_control(meaning);
  }
  if (is_in_query_) say('T', std::string_view{"\0\0", 2});
  if (meaning == Meaning::admit) say('D', std::string_view{"\0\0", 2});
  tag("DONE");
  return true;
}

void ModelServer::begin_query(std::string_view text) {
  if (text.starts_with("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;SELECT a.verdict")) {
    tag("BEGIN");
    std::string row(2, '\0');
    for (const std::string_view value :
         {std::string_view{chance_() ? "stale" : "admitted"}, std::string_view{"7"}}) {
      add_number(row, static_cast<std::uint32_t>(value.size()));
      row += value;
    }
    say('D', row);
    tag("SELECT 1");
    tag("COMMIT");
    return ready();
  }
  portals_.erase("");
  const auto found = read(text);
  if (!found) {
    (void)fail("42601");
    return ready();
  }
  if (found->empty()) say('I');
  query_.assign(found->rbegin(), found->rend());
  is_several_ = found->size() > 1;
  is_in_query_ = true;
  go_on_with_query();
}

void ModelServer::go_on_with_query() {
  while (!query_.empty()) {
    const auto meaning = query_.back();
    query_.pop_back();
    if (!run(meaning, true)) {
      query_.clear();
      break;
    }
    if (is_copying_) return;
    if (std::exchange(ends_at_once_, false)) end(true);
  }
  if (transaction_ && !transaction_->is_block) end(true);
  is_in_query_ = is_several_ = false;
  ready();
}

void ModelServer::take_copy(char type) {
  if (type == 'd' || type == 'S' || type == 'H') return;
  is_copying_ = false;
  const bool is_done = type == 'c' && !chance_();
  if (is_done) {
    tag("COPY 1");
  } else {
    (void)fail("57014");
    query_.clear();
    is_skipping_ = !is_in_query_;
  }
  if (is_in_query_) go_on_with_query();
}

void ModelServer::take_message(char type, std::string_view body) {
  if (is_copying_) return take_copy(type);
  switch (type) {
    case 'd':
    case 'c':
    case 'f':
    case 'H':
      return;
    case 'X':
      is_over_ = true;
      return;
    case 'S':
      is_skipping_ = false;
      if (!transaction_ || !transaction_->is_block) end(true);
      return ready();
    default:
      break;
  }
  if (is_skipping_) return;
  if (type == 'Q') {
    const auto text = take_text(body);
    if (!text || !body.empty()) violated("the server got a query that is none", body);
    return begin_query(*text);
  }
  if (type == 'F') {
    if (!transaction_) violated("a function is called outside of a transaction", "");
    if (transaction_->is_aborted) {
      (void)fail("25P02");
    } else if (write()) {
      say('V', std::string_view{"\xff\xff\xff\xff", 4});
    }
    return ready();
  }
  take_extended(type, body);
}

void ModelServer::take_extended(char type, std::string_view body) {
  const auto size = out_->size();
  switch (type) {
    case 'P':
      take_parse(body);
      break;
    case 'B':
      take_bind(body);
      break;
    case 'E':
      take_execute(body);
      break;
    case 'D':
      take_describe(body);
      break;
    case 'C':
      take_close(body);
      break;
    default:
      violated("the server got a message of no kind", {&type, 1});
  }
  // An error is the last that was said.
  for (std::string_view said = std::string_view{*out_}.substr(size); !said.empty();) {
    if (said.front() == 'E') is_skipping_ = true;
    said.remove_prefix(read_number(said.substr(1)) + std::size_t{1});
  }
}

void ModelServer::take_parse(std::string_view body) {
  const auto name = take_text(body);
  const auto text = name ? take_text(body) : std::nullopt;
  if (!text) violated("the server got a Parse that is none", body);
  if (name->empty()) statements_.erase("");
  const auto found = read(*text);
  start();
  if (!found || found->size() > 1) return (void)fail("42601");
  const auto meaning = found->empty() ? Meaning::nothing : found->front();
  if (!is_allowed(meaning)) return (void)fail("25P02");
  if (meaning == Meaning::insert || meaning == Meaning::select) transaction_->has_snapshot = true;
  if (statements_.contains(*name)) return (void)fail("42P05");
  statements_.emplace(*name, meaning);
  say('1');
}

void ModelServer::take_bind(std::string_view body) {
  const auto portal = take_text(body);
  const auto name = portal ? take_text(body) : std::nullopt;
  if (!name) return (void)fail("08P01");
  start();
  const auto found = statements_.find(*name);
  if (found == statements_.end()) return (void)fail("26000");
  if (!is_allowed(found->second)) return (void)fail("25P02");
  if (!portal->empty() && portals_.contains(*portal)) return (void)fail("42P03");
  if (found->second == Meaning::insert || found->second == Meaning::select) transaction_->has_snapshot = true;
  portals_.insert_or_assign(std::string{*portal}, Portal{.meaning = found->second});
  say('2');
}

void ModelServer::take_execute(std::string_view body) {
  const auto portal = take_text(body);
  const auto found = portal ? portals_.find(*portal) : portals_.end();
  start();
  if (found == portals_.end()) return (void)fail("34000");
  const auto meaning = found->second.meaning;
  if (!is_allowed(meaning)) return (void)fail("25P02");
  if (found->second.is_done) return (void)fail("55000");
  if (meaning == Meaning::select && chance_()) return say('s');
  found->second.is_done = true;
  if (!run(meaning, true)) return;
  if (std::exchange(ends_at_once_, false)) return end(true);
  // The first of what runs alone, and whatever else came before it, is a transaction.
  if (transaction_) transaction_->has_run = true;
}

void ModelServer::take_describe(std::string_view body) {
  if (body.empty()) return (void)fail("08P01");
  const auto name = body.substr(1, body.size() - 2);
  start();
  const bool is_statement = body.front() == 'S';
  if (is_statement ? !statements_.contains(name) : !portals_.contains(name)) return (void)fail("26000");
  if (is_statement) say('t', std::string_view{"\0\0", 2});
  say('n');
}

void ModelServer::take_close(std::string_view body) {
  if (body.empty()) return (void)fail("08P01");
  const auto name = body.substr(1, body.size() - 2);
  if (body.front() == 'S') {
    if (const auto found = statements_.find(name); found != statements_.end()) statements_.erase(found);
  } else if (const auto portal = portals_.find(name); portal != portals_.end()) {
    portals_.erase(portal);
  }
  say('3');
}

}  // namespace fenceguard::pgwire::test
