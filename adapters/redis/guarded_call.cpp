#include "adapters/redis/guarded_call.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>

#include "adapters/redis/wire/errors.hpp"
#include "adapters/redis/wire/scripts.hpp"

namespace fenceguard::redis {
namespace {

// Of a call of several writes. No other client is served while it is run, and with an outcome that is not
// known none of them is. Without a full memory's OOM, too: the server looks before the first that writes.
constexpr std::size_t writes_max = 64;
constexpr std::size_t bytes_max = 65'536;

// Where guarded.lua is told the claim, and where it answers with the first reply.
constexpr std::size_t claim_argument = 0;
constexpr std::size_t first_reply = 4;

// Of an array {place, digits, place, digits, ...}: the replies that Lua rounded.
void make_exact(std::vector<Reply>& replies, const Reply& exact) {
  for (std::size_t i = 0; i + 1 < exact.elements.size(); i += 2) {
    const auto place = static_cast<std::size_t>(exact.elements[i].integer);
    replies.at(place - 1).integer = std::stoll(exact.elements[i + 1].text);
  }
}

// True for an error that says how the server is, not what is wrong with the command, which it did not run. It
// comes before the first write of a script or not at all (scripts of Redis: 'write commands are not refused
// once the script has written'), but for a key that is gone while its slot is moved: 'ERR Script attempted to
// access a non local key'.
bool is_of_server(const Reply& reply) {
  constexpr std::array words{"READONLY", "OOM",    "MISCONF",     "NOREPLICAS", "LOADING",
                             "TRYAGAIN", "NOPERM", "CLUSTERDOWN", "MASTERDOWN", "ERR Script attempted to"};
  return reply.is_error() &&
         std::ranges::any_of(words, [&](const char* word) { return reply.text.starts_with(word); });
}

// True for an answer of guarded.lua; else it is one of equal_one.lua or equal_run.lua.
bool is_of_whole_rule(const Reply& reply) {
  return reply.elements.size() >= first_reply && reply.elements[0].kind == Reply::Kind::text;
}

WriteResult written_of_equal(const Claim& claim) {
  WriteResult written;
  written.ruling.verdict = Verdict::admitted;
  written.ruling.highest = claim.token.value();
  written.ruling.fence = Fence{claim.token, claim.holder, std::nullopt, false};
  return written;
}

// The answer of equal_one.lua: the command's reply, {reply} or {reply, digits}.
std::optional<WriteResult> written_of_one(Reply reply, const Claim& claim) {
  auto written = written_of_equal(claim);
  if (reply.kind != Reply::Kind::array) {
    written.replies.push_back(std::move(reply));
    return written;
  }
  if (reply.elements.empty()) return std::nullopt;
  if (reply.elements.size() > 1) reply.elements[0].integer = std::stoll(reply.elements[1].text);
  written.replies.push_back(std::move(reply.elements[0]));
  return written;
}

// The answer of equal_run.lua; nothing if it is none.
std::optional<WriteResult> written_of_run(Reply reply, const Claim& claim) {
  if (reply.kind != Reply::Kind::array || reply.elements.empty()) return std::nullopt;
  auto written = written_of_equal(claim);
  const auto begin = reply.elements.begin();
  written.replies.assign(std::move_iterator{begin + 1}, std::move_iterator{reply.elements.end()});
  make_exact(written.replies, *begin);
  return written;
}

// The answer of guarded.lua; nothing if it is none.
std::optional<WriteResult> written_of(Reply reply, const Claim& claim) {
  const bool is_raised = reply.elements[0].text == "raised";
  const auto verdict = is_raised ? Verdict::admitted : parse_verdict(reply.elements[0].text);
  const auto highest = verdict ? parse_decimal(reply.elements[1].text) : std::nullopt;
  if (!highest) return std::nullopt;
  WriteResult written;
  written.ruling.verdict = *verdict;
  written.ruling.highest = *highest;
  written.ruling.raised = is_raised;
  if (*verdict == Verdict::admitted || *verdict == Verdict::duplicate) {
    written.ruling.fence = Fence{claim.token, claim.holder, Sequence::parse(reply.elements[2].text), false};
  }
  const auto begin = reply.elements.begin();
  written.replies.assign(std::move_iterator{begin + first_reply}, std::move_iterator{reply.elements.end()});
  make_exact(written.replies, reply.elements[3]);
  return written;
}

}  // namespace

void GuardedCall::add(const Command& command, const CommandTable::Facts& facts,
                      const std::vector<std::string_view>& keys) {
  parts_.push_back({&command, facts.writes, facts.needs_memory});
  keys_.insert(keys_.end(), keys.begin(), keys.end());
  for (const auto& word : command) bytes_ += word.size() + 8;  // about what is sent
}

bool GuardedCall::take(const GuardedCall& other) {
  const bool are_single = parts_.size() == places_.size() && other.parts_.size() == 1;
  if (!are_single || claim_->sequence || *claim_ != *other.claim_) return false;
  if (parts_.size() == writes_max || bytes_ + other.bytes_ > bytes_max) return false;
  // The server asks whether there is memory until a script has written.
  const auto writes_anyway = [](const Part& part) { return part.writes && !part.needs_memory; };
  if (other.parts_.front().needs_memory && std::ranges::any_of(parts_, writes_anyway)) return false;
  places_.push_back(other.places_.front());
  parts_.push_back(other.parts_.front());
  keys_.insert(keys_.end(), other.keys_.begin(), other.keys_.end());
  bytes_ += other.bytes_;
  return true;
}

bool GuardedCall::writes() const noexcept {
  return std::ranges::any_of(parts_, &Part::writes);
}

// What equal_one.lua is made for.
bool GuardedCall::is_one() const noexcept {
  return parts_.size() == 1 && parts_.front().writes && !claim_->sequence;
}

std::string GuardedCall::claim_text(bool is_asked, std::int64_t jump_max) const {
  auto text = to_string(claim_->token);
  text.append(" ").append(claim_->holder.id()).append(" ");
  // What writes nothing must not use up a sequence.
  text.append(claim_->sequence && writes() ? to_string(*claim_->sequence) : "-");
  return text.append(is_asked ? " 1 " : " 0 ").append(std::to_string(jump_max));
}

std::string GuardedCall::layout() const {
  std::string text = is_each() ? "each" : "all";
  for (const auto& part : parts_)
    text.append(part.writes ? " " : " -").append(std::to_string(part.command->size()));
  return text;
}

Run GuardedCall::run(const Client& client, std::int64_t jump_max) {
  const bool is_cluster = client.is_cluster();
  fence_key_ = client.keys().fence(claim_->resource);
  claim_text_ = claim_text(false, jump_max);
  Run run{is_one() ? scripts::guarded_one(is_cluster) : scripts::guarded(is_cluster), {}, {}};
  run.keys.reserve(2 + keys_.size());
  run.keys.push_back(fence_key_);
  if (is_cluster) {
    asked_claim_text_ = claim_text(true, jump_max);
    run.asked = claim_argument;
    run.asked_text = asked_claim_text_;
  } else {
    name_space_key_ = client.keys().name_space();
    run.keys.push_back(name_space_key_);
  }
  run.keys.insert(run.keys.end(), keys_.begin(), keys_.end());
  std::size_t words = 2;
  for (const auto& part : parts_) words += part.command->size();
  run.arguments.reserve(words);
  run.arguments.push_back(claim_text_);
  if (!is_one()) {
    layout_ = layout();
    run.arguments.push_back(layout_);
  }
  for (const auto& part : parts_)
    run.arguments.insert(run.arguments.end(), part.command->begin(), part.command->end());
  return run;
}

Fault GuardedCall::fault(const Reply& error) const {
  return fault_of(fmt::format("'{}'", claim_->resource.name()), error);
}

// A command that the server's state refused before anything was written is not run.
Outcome<WriteResult> GuardedCall::of_one_write(WriteResult written) const {
  if (written.replies.empty() || !is_of_server(written.replies.back())) return written;
  const auto before = parts_.begin() + static_cast<std::ptrdiff_t>(written.replies.size()) - 1;
  if (std::any_of(parts_.begin(), before, [](const Part& part) { return part.writes; })) return written;
  return fault(written.replies.back());
}

std::vector<Outcome<WriteResult>> GuardedCall::of_each(const WriteResult& written) const {
  std::vector<Outcome<WriteResult>> all;
  all.reserve(places_.size());
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (written.replies.empty()) {
      all.emplace_back(WriteResult{written.ruling, {}});
    } else if (is_of_server(written.replies.at(i))) {
      all.emplace_back(fault(written.replies[i]));
    } else {
      all.emplace_back(WriteResult{written.ruling, {written.replies[i]}});
    }
  }
  return all;
}

std::vector<Outcome<WriteResult>> GuardedCall::outcomes(Outcome<Reply> reply) const {
  const auto same = [&](const Fault& fault) {
    return std::vector<Outcome<WriteResult>>(places_.size(), fault);
  };
  if (!reply.ok()) return same(reply.fault());
  if (reply.value().is_error()) return same(fault(reply.value()));
  const auto read = is_of_whole_rule(reply.value()) ? written_of : is_one() ? written_of_one : written_of_run;
  auto written = read(std::move(reply.value()), *claim_);
  const bool is_admitted = written && written->ruling.verdict == Verdict::admitted;
  if (!written || (is_each() && is_admitted && written->replies.size() != places_.size()))
    return same({FaultKind::unknown, "Redis answered with what is no ruling"});
  if (is_each()) return of_each(*written);
  return {of_one_write(*std::move(written))};
}

}  // namespace fenceguard::redis
