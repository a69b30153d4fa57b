// The console works without scripts; these make it faster. One module for each feature.
import { sendOnce } from "./acting.js";
import { fitNarrow } from "./cards.js";
import { drawCharts } from "./charts.js";
import { openDialogs } from "./dialogs.js";
import { readKeys } from "./keys.js";
import { keepLive } from "./live.js";
import { tickRows } from "./rows.js";
import { tellWhatWasKept } from "./telling.js";
import { chooseTheme } from "./theming.js";
import { keepTimes } from "./times.js";
import { copyTexts } from "./copying.js";
import { chooseWays } from "./ways.js";

chooseTheme();
tickRows();
openDialogs();
sendOnce();
readKeys();
keepLive();
keepTimes();
copyTexts();
chooseWays();
fitNarrow();
drawCharts();
tellWhatWasKept();
