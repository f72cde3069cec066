// In the place of the theme's own script, which stops with an error where there is no search; and
// pages that are opened from disk cannot have one: browsers let them start no worker.
function leaveRoomForTheBar() {
  const top = document.querySelector("body > .container").offsetTop + "px";
  document.documentElement.style.scrollPaddingTop = top;
  document.querySelectorAll(".bs-sidebar.affix").forEach((sidebar) => {
    sidebar.style.top = top;
  });
}

document.addEventListener("DOMContentLoaded", leaveRoomForTheBar);
window.addEventListener("resize", leaveRoomForTheBar);
