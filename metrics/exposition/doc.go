// Package exposition tells figures in Prometheus' formats, under the names and
// labels that a kubelet gives them.
//
//	figures of now -> []Sample -> Serve -> text or protobuf
//
// Nothing is kept between two scrapes: what is counted is counted where it
// happens, and everything else is measured for the one who asks.
// https://kubernetes.io/docs/reference/instrumentation/metrics/
package exposition
