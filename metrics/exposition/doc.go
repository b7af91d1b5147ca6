// Package exposition tells figures in Prometheus' formats, under the names and
// labels that a kubelet gives them.
//
//	figures of now -> []Sample -> Serve -> text or protobuf
//
// No figure is kept between two scrapes: what is counted is counted where it
// happens, and everything else is measured for the one who asks. The memory of
// the last pages is, for a while.
// https://kubernetes.io/docs/reference/instrumentation/metrics/
package exposition
