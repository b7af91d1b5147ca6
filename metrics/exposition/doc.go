// Package exposition serves metrics in the formats of Prometheus, with the names and labels of a kubelet.
//
//	figures of now -> []Sample -> Serve -> text or protobuf
//
// No metric is stored between two scrapes. Counters are part of the packages that count, and everything
// else is measured for each scrape. Only the memory for the last pages is kept for some time. See
// https://kubernetes.io/docs/reference/instrumentation/metrics/.
package exposition
