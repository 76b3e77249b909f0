// What a call can end with beside success, each a class of its own; code is its word. index.d.ts says what each means.

export class FenceguardError extends Error {
  constructor(message, { cause, ...facts } = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    this.code = new.target.name.toLowerCase();
    Object.assign(this, facts);
  }
}

export class Refused extends FenceguardError {}
export class Stale extends Refused {}
export class Conflict extends Refused {}
export class Held extends FenceguardError {}
export class Lost extends FenceguardError {}
export class Unavailable extends FenceguardError {}
export class Unknown extends FenceguardError {}
export class Misdirected extends FenceguardError {}
export class Unauthorized extends FenceguardError {}
export class Rejected extends FenceguardError {}
