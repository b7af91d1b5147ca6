// Package exposition serves metrics in the formats of Prometheus, with the names and labels of a kubelet.
//
//	present figures -> []Sample -> Serve -> text or protobuf
//
// No metric is stored between two scrapes. Counters are variables of the packages that increment them. All other metrics are measured for
// each scrape. The package keeps only the memory of the last pages, to reuse it for the next pages. See
// https://kubernetes.io/docs/reference/instrumentation/metrics/.
package exposition
