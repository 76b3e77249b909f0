#include "tests/proof/checker/rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

namespace fenceguard::proof {
namespace {

bool is_claimed(const Operation& operation) {
  return operation.token > 0 && operation.kind != Kind::floor;
}

// Let in by the rule; the storage may have refused it.
bool is_let_in(const Operation& operation) {
  return is_claimed(operation) &&
         (operation.answer == Answer::admitted || operation.answer == Answer::refused);
}

bool is_written(const Operation& operation) {
  return operation.kind == Kind::write && operation.answer == Answer::admitted;
}

// Certainly without an effect on the data.
bool is_without_effect(const Operation& operation) {
  return operation.answer != Answer::admitted && operation.answer != Answer::unknown;
}

class Rules {
 public:
  Rules(const ResourceHistory& resource, const Texts& texts) : resource_{resource}, texts_{texts} {
    for (const Operation& operation : resource.operations) {
      by_call_.push_back(&operation);
      if (operation.returned != never) by_return_.push_back(&operation);
      if (operation.kind == Kind::write) writes_.emplace(operation.value, &operation);
    }
    std::ranges::stable_sort(by_return_, {}, &Operation::returned);
  }

  std::optional<Breach> run() {
    check_order();
    check_holders();
    check_reasons();
    check_reads();
    if (resource_.has_log) check_log();
    return std::move(breach_);
  }

 private:
  template <class... Words>
  void accuse(const char* rule, fmt::format_string<Words...> text, Words&&... words) {
    if (!breach_) breach_ = Breach{rule, fmt::format(text, std::forward<Words>(words)...)};
  }

  [[nodiscard]] std::string words(const Operation& operation) const {
    std::string text = fmt::format("{} by process {}", name_of(operation.kind), operation.process);
    if (operation.token > 0) text += fmt::format(" under {}", operation.token);
    if (operation.kind == Kind::write) text += fmt::format(" of '{}'", texts_.text(operation.value));
    return operation.line > 0 ? text + fmt::format(" (line {})", operation.line) : text;
  }

  // Calls visit(operation) in the order of the calls, and before it note(other) of every one that had
  // returned by then.
  template <class Note, class Visit>
  void in_order(Note note, Visit visit) const {
    std::size_t returned = 0;
    for (const Operation* operation : by_call_) {
      while (returned < by_return_.size() && by_return_[returned]->returned < operation->called)
        note(*by_return_[returned++]);
      visit(*operation);
    }
  }

  void check_order() {
    std::int64_t told = 0, admitted = 0;
    const Operation* telling = nullptr;
    const Operation* admitting = nullptr;
    in_order(
        [&](const Operation& before) {
          if (is_judged(before) && before.highest > told) {
            told = before.highest;
            telling = &before;
          }
          if (is_let_in(before) && before.token > admitted) {
            admitted = before.token;
            admitting = &before;
          }
        },
        [&](const Operation& operation) {
          if (is_judged(operation) && operation.highest >= 0 && operation.highest < told) {
            accuse("fence-falls", "the {} was told {} as the highest token, after {} was told to the {}",
                   words(operation), operation.highest, told, words(*telling));
          }
          if (is_let_in(operation) && operation.token < admitted)
            accuse("lower-admitted", "the {} was admitted after the {}", words(operation), words(*admitting));
        });
  }

  static bool is_judged(const Operation& operation) {
    return operation.answer <= Answer::refused && operation.kind != Kind::floor;
  }

  void check_holders() {
    std::unordered_map<std::int64_t, const Operation*> first;
    for (const Operation* operation : by_call_) {
      if (!is_let_in(*operation)) continue;
      const auto [found, is_new] = first.try_emplace(operation->token, operation);
      if (!is_new && found->second->holder != operation->holder) {
        accuse("two-holders", "the {} and the {} were both admitted, by the holders '{}' and '{}'",
               words(*found->second), words(*operation), texts_.text(found->second->holder),
               texts_.text(operation->holder));
      }
    }
  }

  // What had been asked before an answer was there, summed up: more than one look at each would be the time
  // of all pairs.
  struct Asked {
    std::int64_t highest = 0;  // of claims and floors
    std::int64_t floor = 0;
    bool has_revoke = false;
    struct OfToken {
      TextId holder = 0;
      bool has_two_holders = false;
      std::unordered_map<TextId, std::int64_t> highest_sequence;  // by holder
    };
    std::unordered_map<std::int64_t, OfToken> tokens;
    std::unordered_map<std::int64_t, std::vector<std::pair<TextId, std::int64_t>>> sequences;

    void note(const Operation& operation) {
      if (operation.kind == Kind::revoke) has_revoke = true;
      if (operation.token <= 0 || operation.answer == Answer::implausible) return;
      highest = std::max(highest, operation.token);
      if (operation.kind == Kind::floor) {
        floor = std::max(floor, operation.token);
        return;
      }
      const auto [found, is_new] = tokens.try_emplace(operation.token);
      if (is_new) found->second.holder = operation.holder;
      found->second.has_two_holders |= found->second.holder != operation.holder;
      if (operation.sequence < 0) return;
      auto& sequence = found->second.highest_sequence.try_emplace(operation.holder, -1).first->second;
      sequence = std::max(sequence, operation.sequence);
    }
    [[nodiscard]] std::int64_t sequence_of(const Operation& operation) const {
      const auto found = tokens.find(operation.token);
      if (found == tokens.end()) return -1;
      const auto sequence = found->second.highest_sequence.find(operation.holder);
      return sequence == found->second.highest_sequence.end() ? -1 : sequence->second;
    }
  };

  void check_reasons() {
    Asked asked;
    std::size_t called = 0;
    for (const Operation* operation : by_return_) {
      while (called < by_call_.size() && by_call_[called]->called <= operation->returned)
        asked.note(*by_call_[called++]);
      check_reason(*operation, asked);
    }
  }

  void check_reason(const Operation& operation, const Asked& asked) {
    if (operation.highest > 0 && is_judged(operation) && operation.highest > asked.highest)
      accuse("no-reason", "the {} was told {} as the highest token, which nobody had claimed",
             words(operation), operation.highest);
    if (operation.answer == Answer::stale) {
      const bool is_overtaken = operation.sequence >= 0 && asked.sequence_of(operation) > operation.sequence;
      if (asked.highest <= operation.token && !asked.has_revoke && asked.floor < operation.token &&
          !is_overtaken)
        accuse("no-reason", "the {} was refused as stale, and nothing higher had been asked",
               words(operation));
    } else if (operation.answer == Answer::conflict) {
      const auto found = asked.tokens.find(operation.token);
      const bool has_other = found != asked.tokens.end() &&
                             (found->second.has_two_holders || found->second.holder != operation.holder);
      if (!has_other)
        accuse("no-reason", "the {} was refused as a conflict, and it is the only holder", words(operation));
    } else if (operation.answer == Answer::duplicate) {
      if (!has_twin(operation))
        accuse("no-reason", "the {} was called a duplicate of a write that nobody asked", words(operation));
    }
  }

  // Another write of the same claim and sequence, called before this one returned, that may have landed.
  [[nodiscard]] bool has_twin(const Operation& operation) {
    if (twins_.empty()) {
      for (const Operation* other : by_call_) {
        if (other->kind == Kind::write && other->sequence >= 0 && !is_without_effect(*other))
          twins_[key_of(*other)].push_back(other);
      }
      twins_[""];
    }
    const auto found = twins_.find(key_of(operation));
    return found != twins_.end() && std::ranges::any_of(found->second, [&](const Operation* other) {
             return other != &operation && other->called <= operation.returned;
           });
  }

  static std::string key_of(const Operation& operation) {
    return fmt::format("{} {} {}", operation.token, operation.holder, operation.sequence);
  }

  void check_reads() {
    for (const Operation* read : by_call_) {
      if (read->kind != Kind::read || read->answer != Answer::admitted || read->value == 0) continue;
      const auto found = writes_.find(read->value);
      if (found == writes_.end()) {
        accuse("read", "the {} shows '{}', which nobody wrote", words(*read), texts_.text(read->value));
      } else if (is_without_effect(*found->second)) {
        accuse("read", "the {} shows the {}, which was answered {}", words(*read), words(*found->second),
               name_of(found->second->answer));
      } else if (found->second->called > read->returned) {
        accuse("read", "the {} shows the {}, which was asked later", words(*read), words(*found->second));
      }
    }
  }

  void check_log() {
    std::unordered_map<TextId, std::int64_t> places;
    std::int64_t highest = 0;
    for (std::size_t i = 0; i < resource_.log.size(); ++i) {
      const Applied& applied = resource_.log[i];
      const std::string& value = texts_.text(applied.value);
      if (applied.token < highest)
        accuse("log-falls", "the storage applied '{}' under {} after a write under {}", value, applied.token,
               highest);
      highest = std::max(highest, applied.token);
      const auto write = writes_.find(applied.value);
      if (write == writes_.end()) {
        accuse("unasked", "the storage applied '{}', which nobody wrote", value);
      } else if (write->second->token != applied.token) {
        accuse("unasked", "the storage applied the {} under {}", words(*write->second), applied.token);
      } else if (is_without_effect(*write->second)) {
        accuse("unasked", "the storage applied the {}, which was answered {}", words(*write->second),
               name_of(write->second->answer));
      }
      if (!places.try_emplace(applied.value, static_cast<std::int64_t>(i)).second)
        accuse("twice", "the storage applied '{}' twice", value);
    }
    for (const Operation* operation : by_call_) {
      if (is_written(*operation) && !places.contains(operation->value))
        accuse("lost", "the {} was acknowledged, and the storage has not applied it", words(*operation));
    }
    if (!breach_) check_places(places);
  }

  // Where each write is in the log, and how far each read has seen it.
  void check_places(const std::unordered_map<TextId, std::int64_t>& places) {
    std::vector<std::int64_t> lowest_after(resource_.log.size() + 1, never);
    for (std::size_t i = resource_.log.size(); i-- > 0;)
      lowest_after[i] = std::min(lowest_after[i + 1], resource_.log[i].token);
    const auto place_of = [&](const Operation& operation) {
      const bool is_seen =
          is_written(operation) || (operation.kind == Kind::read && operation.answer == Answer::admitted);
      if (!is_seen) return std::int64_t{-2};
      const auto found = places.find(operation.value);
      return found == places.end() ? -1 : found->second;
    };
    std::int64_t last = -1;
    const Operation* seen = nullptr;
    in_order(
        [&](const Operation& before) {
          if (place_of(before) <= last) return;
          last = place_of(before);
          seen = &before;
        },
        [&](const Operation& operation) {
          const std::int64_t place = place_of(operation);
          if (place == -2) return;
          const bool is_read = operation.kind == Kind::read;
          if (is_read && operation.value != 0 && place == -1)
            accuse("read", "the {} shows '{}', which the storage has not applied", words(operation),
                   texts_.text(operation.value));
          if (place < last && is_read)
            accuse("older-value", "the {} shows less than the {} before it", words(operation), words(*seen));
          if (place < last && !is_read)
            accuse("log-order", "the storage applied the {} before what the {} showed", words(operation),
                   words(*seen));
          const std::int64_t lowest = lowest_after[static_cast<std::size_t>(place + 1)];
          if (is_read && operation.token > 0 && lowest < operation.token)
            accuse("older-after", "after what the {} showed, the storage applied a write under {}",
                   words(operation), lowest);
        });
  }

  const ResourceHistory& resource_;
  const Texts& texts_;
  std::vector<const Operation*> by_call_;
  std::vector<const Operation*> by_return_;
  std::unordered_map<TextId, const Operation*> writes_;
  std::unordered_map<std::string, std::vector<const Operation*>> twins_;
  std::optional<Breach> breach_;
};

}  // namespace

std::optional<Breach> broken_rule(const ResourceHistory& resource, const Texts& texts) {
  return Rules{resource, texts}.run();
}

std::optional<Breach> broken_bound(const History& history) {
  struct Event {
    std::int64_t at;
    const Operation* operation;
    bool is_return;
  };
  std::vector<Event> events;
  bool is_any_implausible = false;
  for (const auto& resource : history.resources) {
    for (const Operation& operation : resource.operations) {
      is_any_implausible |= operation.answer == Answer::implausible;
      if (operation.token > 0) events.push_back({operation.called, &operation, false});
      if (operation.token > 0 && operation.returned != never)
        events.push_back({operation.returned, &operation, true});
    }
  }
  if (!is_any_implausible) return std::nullopt;
  std::ranges::stable_sort(events, [](const Event& a, const Event& b) {
    return a.at != b.at ? a.at < b.at : a.is_return < b.is_return;
  });
  std::int64_t highest = 0;  // that an answer showed
  std::unordered_map<const Operation*, std::int64_t> at_call;
  for (const Event& event : events) {
    const Operation& operation = *event.operation;
    if (operation.answer == Answer::implausible) {
      const bool is_beyond =
          history.bound > 0 && operation.token > highest && operation.token - highest > history.bound;
      if (!event.is_return && !is_beyond) {
        return Breach{"no-reason", fmt::format("the {} by process {} under {} was called implausible, and {} "
                                               "had been admitted with a bound of {}",
                                               name_of(operation.kind), operation.process, operation.token,
                                               highest, history.bound)};
      }
    } else if (event.is_return && operation.answer <= Answer::refused) {
      highest = std::max({highest, operation.highest, is_let_in(operation) ? operation.token : 0});
    }
  }
  return std::nullopt;
}

}  // namespace fenceguard::proof
