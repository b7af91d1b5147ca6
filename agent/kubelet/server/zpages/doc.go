// Package zpages serves the pages about this process that every Kubernetes component has.
//
//	/healthz, /healthz/CHECK --> checks --results--> slis --> /metrics/slis
//	/statusz, /flagz ----------> versions, paths, flags
//	/configz ------------------> configuration of the kubelet, without secrets
//	/debug/flags/v ------------> log level
//	/debug/pprof/ -------------> profiles of Go's runtime
//
// Nothing runs between requests, except that allocations are recorded after the first request for a profile of the memory.
package zpages
