// Package exposition serves metrics in the formats of Prometheus, with the names and labels of a kubelet.
//
//	figures of now -> []Sample -> Serve -> text or protobuf
//
// No metric is stored between two scrapes. The counters are variables of the packages that increment them. Everything
// else is measured for each scrape. Only the memory of the last pages is kept for some time, for reuse. See
// https://kubernetes.io/docs/reference/instrumentation/metrics/.
package exposition
