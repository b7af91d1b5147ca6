package agent

import (
	"context"
	"io"
	"io/fs"
	"time"

	v1 "k8s.io/api/core/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/islet-edge/islet/agent/device/hardware"
	"github.com/islet-edge/islet/agent/doctor"
	"github.com/islet-edge/islet/agent/host/shutdown"
	"github.com/islet-edge/islet/agent/host/volatile"
	"github.com/islet-edge/islet/agent/pod/spec/portconflict"
	"github.com/islet-edge/islet/internal/config"
)

// Doctor runs the command islet doctor; see doctor.Main.
func Doctor(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return doctor.Main(ctx, args, doctor.Externals{
		CheckClasses: func(classes []config.DeviceClass) (out []doctor.Complaint, err error) {
			found, err := hardware.CheckClasses(classes, "")
			for _, f := range found {
				out = append(out, doctor.Complaint(f))
			}
			return out, err
		},
		HostPorts: func(host fs.FS) (func(*v1.Pod) []string, error) {
			sockets, err := portconflict.ListSockets(host)
			return func(pod *v1.Pod) []string { return portconflict.FindConflicts(pod, sockets) }, err
		},
		ShutdownTime:  func(k *kubelet.KubeletConfiguration) time.Duration { return shutdown.Total(shutdown.Periods(k)) },
		ShutdownDelay: func(ctx context.Context) (time.Duration, error) { return shutdown.Delay(ctx, shutdown.SystemBus()) },
		Volatile:      volatile.Source,
	}, stdout, stderr)
}
