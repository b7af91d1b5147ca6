// Package exposition serves metrics in Prometheus' formats, with the names and labels of a kubelet.
//
//	figures of now -> []Sample -> Serve -> text or protobuf
//
// No metric is stored between two scrapes: counters are in the packages that count, and everything
// else is measured for each scrape. Only the memory of the last pages is reused for a while.
// https://kubernetes.io/docs/reference/instrumentation/metrics/
package exposition
