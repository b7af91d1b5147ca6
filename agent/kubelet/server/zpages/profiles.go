package zpages

import (
	"net/http"
	"net/http/pprof"
	"runtime"
)

// Profiles returns the handlers of the paths for the profiles of this process.
func Profiles() map[string]http.HandlerFunc {
	paths := map[string]http.HandlerFunc{
		"GET /debug/pprof/": pprof.Index, "GET /debug/pprof/cmdline": pprof.Cmdline, "GET /debug/pprof/profile": pprof.Profile,
		"GET /debug/pprof/symbol": pprof.Symbol, "GET /debug/pprof/trace": pprof.Trace,
	}
	for _, of := range []string{"heap", "allocs"} {
		paths["GET /debug/pprof/"+of] = func(w http.ResponseWriter, r *http.Request) {
			profileMemory()
			pprof.Index(w, r)
		}
	}
	return paths
}

// profileMemory enables the profiling of allocations at Go's default rate. It is disabled until the first request, because
// it slows the agent down.
func profileMemory() {
	if runtime.MemProfileRate == 0 {
		runtime.MemProfileRate = 512 << 10
	}
}
