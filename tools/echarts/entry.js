// The parts of Apache ECharts that the page needs; tools/echarts/build.sh makes one file of them.
import { use } from "echarts/core";
import { BarChart, CustomChart, LineChart } from "echarts/charts";
import { DataZoomInsideComponent, DataZoomSliderComponent, GridComponent, TooltipComponent } from "echarts/components";
import { CanvasRenderer } from "echarts/renderers";

use([BarChart, CustomChart, LineChart, DataZoomInsideComponent, DataZoomSliderComponent, GridComponent, TooltipComponent, CanvasRenderer]);
export { init } from "echarts/core";
