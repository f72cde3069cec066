// Storage of the browser: for this tab, and permanent.

/** A store that works even where the browser blocks storage: then nothing survives a reload. */
function store(name) {
  const fallback = new Map();
  const access = (act, otherwise) => {
    try {
      return act(window[name]); // where storage is blocked, even naming it throws
    } catch {
      return otherwise();
    }
  };
  return {
    read: (key) => access((real) => real.getItem(key), () => fallback.get(key) ?? null),
    write: (key, value) => access((real) => real.setItem(key, value), () => fallback.set(key, value)),
  };
}

export const ofTab = store("sessionStorage");
export const lasting = store("localStorage");

/** Whether this page is a reload. A tab that was duplicated has the storage of the other one, but not its runs. */
export const isReload = () => performance.getEntriesByType("navigation")[0]?.type === "reload";
