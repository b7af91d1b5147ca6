// Package exposition serves metrics in the formats of Prometheus, with the names and labels of a kubelet.
//
//	present figures -> []Sample -> Serve -> text or protobuf
//
// No metric is stored between two scrapes. The counters are variables of the packages that increment them. All other
// metrics are measured for each scrape. The package keeps only the memory of the last pages for some time, for reuse.
// See https://kubernetes.io/docs/reference/instrumentation/metrics/.
package exposition
