#include "adapters/sqlite/objects/object_store.hpp"

#include "adapters/sqlite/file/submit.hpp"

namespace fenceguard::sqlite {
namespace {

// Applies an admitted write; the ending, and the ETag of what was written.
std::pair<ObjectEnding, std::string> apply_object(Ledger& ledger, const ObjectWrite& write) {
  const auto version = ledger.objects().version(write.path);
  std::optional<std::string> present;
  if (version) present = etag(ledger.row().generation, *version);
  if (!preconditions_hold(write, present)) return {ObjectEnding::precondition_failed, present.value_or("")};
  if (write.kind == ObjectWrite::Kind::remove) {
    if (!version) return {ObjectEnding::not_found, ""};
    ledger.objects().remove(write.path);
    return {ObjectEnding::removed, ""};
  }
  const std::int64_t next = ledger.next_object_version();
  ledger.objects().store(write, next);
  return {version ? ObjectEnding::replaced : ObjectEnding::created, etag(ledger.row().generation, next)};
}

bool took_effect(ObjectEnding ending) {
  return ending != ObjectEnding::not_found && ending != ObjectEnding::precondition_failed;
}

Outcome<WriteReport> write_in(Ledger& ledger, const Claim& claim, const ObjectWrite& write,
                              std::int64_t jump_max) {
  const FenceView view = ledger.view(claim.resource);
  auto judged = judge_in(ledger, view, claim, jump_max);
  if (!judged.ok()) return judged.fault();
  WriteReport report{std::move(judged.value()), std::nullopt, ""};
  if (report.ruling.verdict != Verdict::admitted) return report;
  auto [ending, tag] = apply_object(ledger, write);
  report.ending = ending;
  report.etag = std::move(tag);
  // A write that the storage refused leaves its sequence free; the token stays.
  if (!took_effect(ending)) report.ruling = judge_refused_write(view, claim);
  if (report.ruling.changed) ledger.record(claim.resource, *report.ruling.fence);
  return report;
}

}  // namespace

void EmbeddedObjects::write(Claim claim, ObjectWrite write, Done<WriteReport> done) {
  if (auto refusal = fences_.refuse_early(claim)) {
    done(WriteReport{std::move(*refusal), std::nullopt, ""});
    return;
  }
  const std::size_t bytes = write.body.size();
  const auto apply = [claim = std::move(claim), write = std::move(write), jump_max = jump_max_](
                         Ledger& ledger) { return write_in(ledger, claim, write, jump_max); };
  submit<WriteReport>(committer_, Needs::namespace_row, apply, std::move(done), bytes);
}

void EmbeddedObjects::read(Read read, Done<ReadReport> done) {
  if (!read.claim) return look(std::move(read), std::nullopt, std::move(done));
  read.claim->sequence.reset();  // what writes nothing uses up no number
  Claim claim = *read.claim;
  const auto then = [this, read = std::move(read), done = std::move(done)](Outcome<Ruling> advanced) {
    if (!advanced.ok()) return done(advanced.fault());
    if (advanced.value().verdict != Verdict::admitted)
      return done(ReadReport{advanced.value(), std::nullopt});
    look(read, advanced.value(), done);
  };
  fences_.advance(std::move(claim), then);
}

void EmbeddedObjects::look(Read read, std::optional<Ruling> ruling, Done<ReadReport> done) {
  readers_.ask<ReadReport>(
      [read = std::move(read), ruling = std::move(ruling)](Snapshot& snapshot) {
        const auto row = snapshot.fences.load_namespace();
        if (read.claim) {
          // A newer token may have written since the advance.
          const FenceView view{snapshot.fences.load(read.claim->resource.name()), row ? row->floor : 0};
          Ruling now = judge(view, *read.claim);
          if (now.verdict != Verdict::admitted) return ReadReport{std::move(now), std::nullopt};
        }
        ReadReport report{ruling, snapshot.objects.load(read.path, row ? row->generation : "")};
        if (report.object && !read.with_body) report.object->body.clear();
        return report;
      },
      std::move(done));
}

}  // namespace fenceguard::sqlite
