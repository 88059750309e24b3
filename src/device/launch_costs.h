// What launches cost the host, measured on request, beside bare ones measured in turn with them.
#pragma once

namespace spry {

// Times are medians in nanoseconds of the calling thread.
struct LaunchCosts {
  // Of the step launched last.
  int graphs = 0;             // graph launches
  int graph_kernels = 0;      // kernels in these graphs
  int kernels = 0;            // launched one by one
  double bare_graphs_ns = 0;  // as many launches of graphs with as many empty kernels in all
  double bare_kernel_ns = 0;  // one launch of an empty kernel
  // One call of the attention op at that step's counts, outside a graph. 0 kernels: it has none.
  int attention_kernels = 0;
  double attention_ns = 0;
};

}  // namespace spry
