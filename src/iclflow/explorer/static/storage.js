// What the browser keeps for the page: for this tab, and for good.

/** A store that is there even where the browser blocks it: the page then only remembers nothing. */
function store(name) {
  const instead = new Map();
  const reach = (act, otherwise) => {
    try {
      return act(window[name]); // where storage is blocked, even naming it throws
    } catch {
      return otherwise();
    }
  };
  return {
    read: (key) => reach((real) => real.getItem(key), () => instead.get(key) ?? null),
    write: (key, value) => reach((real) => real.setItem(key, value), () => instead.set(key, value)),
  };
}

export const ofTab = store("sessionStorage");
export const lasting = store("localStorage");

/** Whether this page is a reload. A tab that was duplicated has the storage of the other one, but not its runs. */
export const isReload = () => performance.getEntriesByType("navigation")[0]?.type === "reload";
