package csi

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/islet-edge/islet/agent/volume/storage"
)

// newCallSeconds returns the histogram of the durations of CSI calls. The metric has the same name as in a kubelet.
func newCallSeconds() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "csi_operations_seconds", Help: "how long CSI drivers took to answer", Buckets: storage.Seconds,
	},
		[]string{"driver_name", "method_name", "grpc_status_code", "migrated"})
}

// Collectors returns the metrics of the drivers.
func (d *Drivers) Collectors() []prometheus.Collector { return []prometheus.Collector{d.callSeconds} }

// countedConn is a connection to a driver that measures the duration of each call.
type countedConn struct {
	*grpc.ClientConn
	driver string
	calls  *prometheus.HistogramVec
}

// Invoke implements grpc.ClientConnInterface.
func (c countedConn) Invoke(ctx context.Context, method string, args, reply any, o ...grpc.CallOption) error {
	begin := time.Now()
	err := c.ClientConn.Invoke(ctx, method, args, reply, o...)
	c.calls.WithLabelValues(c.driver, method, status.Code(err).String(), "false").Observe(time.Since(begin).Seconds())
	return err
}
