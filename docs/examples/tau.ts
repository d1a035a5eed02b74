// A client of `tau-live proxy` for decisions. Copy it into your agent; it needs nothing but fetch.

export type Features = Record<string, number | string | boolean | null>;
export type Options = string[] | Record<string, Features | null>;

export interface Choice {
  option: string;
  decision: string | null;
  run: string | null;
  source: "policy" | "default";
  propensity: number | null;
  policy_version: number;
}

export class Tau {
  constructor(
    private readonly url = "http://127.0.0.1:8788",
    private readonly token?: string,
    private readonly timeoutMs = 1000,
  ) {}

  /** Choose one of the options; the default, whatever fails. */
  async decide(
    point: string,
    options: Options,
    more: { run?: string; context?: Record<string, unknown>; default?: string; allowed?: string[] } = {},
  ): Promise<Choice> {
    const names = Array.isArray(options) ? options : Object.keys(options);
    const option = more.default ?? (more.allowed ?? names)[0];
    const own: Choice = {
      option, decision: null, run: null, source: "default", propensity: null, policy_version: 0,
    };
    return (await this.post<Choice>("decide", { point, options, ...more })) ?? own;
  }

  /** Reward a decision, a run or the answer of a model; false if it was not taken. */
  async reward(id: string | null, value: number, more: { name?: string; key?: string } = {}): Promise<boolean> {
    if (id === null) return false;
    const taken = await this.post<{ accepted: boolean }>("reward", { id, value, ...more });
    return taken?.accepted ?? false;
  }

  /** Do something as one run, in which several things may be decided. */
  async run<T>(name: string, work: (run: string | undefined) => Promise<T>, session?: string): Promise<T> {
    const begun = await this.post<{ run: string | null }>("runs", { name, session: session ?? null });
    const run = begun?.run ?? undefined;
    let error: string | null = null;
    try {
      return await work(run);
    } catch (failure) {
      error = String(failure).slice(0, 1000);
      throw failure;
    } finally {
      if (run !== undefined) await this.post(`runs/${run}/end`, { error });
    }
  }

  private async post<T>(path: string, body: unknown): Promise<T | undefined> {
    try {
      const headers: Record<string, string> = { "content-type": "application/json" };
      if (this.token !== undefined) headers["x-tau-token"] = this.token;
      const response = await fetch(`${this.url}/v1/${path}`, {
        method: "POST", headers, body: JSON.stringify(body), signal: AbortSignal.timeout(this.timeoutMs),
      });
      return response.ok ? ((await response.json()) as T) : undefined;
    } catch {
      return undefined;
    }
  }
}
