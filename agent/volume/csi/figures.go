package csi

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/islet-edge/islet/agent/volume/storage"
)

// newCalls counts under the kubelet's name.
func newCalls() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "csi_operations_seconds", Help: "how long CSI drivers took to answer", Buckets: storage.Seconds},
		[]string{"driver_name", "method_name", "grpc_status_code", "migrated"})
}

// Collectors are what the metrics say of the drivers.
func (d *Drivers) Collectors() []prometheus.Collector { return []prometheus.Collector{d.calls} }

// counted is a connection to a driver whose calls are counted.
type counted struct {
	*grpc.ClientConn
	driver string
	calls  *prometheus.HistogramVec
}

// Invoke implements grpc.ClientConnInterface.
func (c counted) Invoke(ctx context.Context, method string, args, reply any, o ...grpc.CallOption) error {
	begin := time.Now()
	err := c.ClientConn.Invoke(ctx, method, args, reply, o...)
	c.calls.WithLabelValues(c.driver, method, status.Code(err).String(), "false").Observe(time.Since(begin).Seconds())
	return err
}
