package manifest

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (r *review) checkProbes(p *field.Path, c *v1.Container) {
	if probe := c.LivenessProbe; probe != nil {
		at := p.Child("livenessProbe")
		r.checkProbe(at, probe)
		r.failIf(probe.SuccessThreshold != 1, at.Child("successThreshold"), probe.SuccessThreshold, "must be 1")
	}
	if probe := c.StartupProbe; probe != nil {
		at := p.Child("startupProbe")
		r.checkProbe(at, probe)
		r.failIf(probe.SuccessThreshold != 1, at.Child("successThreshold"), probe.SuccessThreshold, "must be 1")
	}
	if probe := c.ReadinessProbe; probe != nil {
		at := p.Child("readinessProbe")
		r.checkProbe(at, probe)
		if s := probe.TerminationGracePeriodSeconds; s != nil {
			r.addInvalid(at.Child("terminationGracePeriodSeconds"), *s, "a readiness probe does not end containers")
		}
	}
}

func (r *review) checkProbe(p *field.Path, probe *v1.Probe) {
	r.checkHandler(p, handler{Exec: probe.Exec, HTTPGet: probe.HTTPGet, TCPSocket: probe.TCPSocket, GRPC: probe.GRPC})
	r.notNegative(p.Child("initialDelaySeconds"), int64(probe.InitialDelaySeconds))
	r.notNegative(p.Child("timeoutSeconds"), int64(probe.TimeoutSeconds))
	r.notNegative(p.Child("periodSeconds"), int64(probe.PeriodSeconds))
	r.notNegative(p.Child("successThreshold"), int64(probe.SuccessThreshold))
	r.notNegative(p.Child("failureThreshold"), int64(probe.FailureThreshold))
	if s := probe.TerminationGracePeriodSeconds; s != nil {
		r.failIf(*s <= 0, p.Child("terminationGracePeriodSeconds"), *s, "must be greater than 0")
	}
}

func (r *review) checkLifecycle(p *field.Path, l *v1.Lifecycle) {
	if l == nil {
		return
	}
	if h := l.PostStart; h != nil {
		r.checkHandler(p.Child("postStart"), handler{Exec: h.Exec, HTTPGet: h.HTTPGet, TCPSocket: h.TCPSocket, Sleep: h.Sleep})
	}
	if h := l.PreStop; h != nil {
		r.checkHandler(p.Child("preStop"), handler{Exec: h.Exec, HTTPGet: h.HTTPGet, TCPSocket: h.TCPSocket, Sleep: h.Sleep})
	}
	if l.StopSignal != nil {
		r.stopSignal(p.Child("stopSignal"), *l.StopSignal)
	}
}

// A handler is the action of a probe or of a lifecycle hook. Exactly one of its fields must be set.
type handler struct {
	Exec      *v1.ExecAction
	HTTPGet   *v1.HTTPGetAction
	TCPSocket *v1.TCPSocketAction
	GRPC      *v1.GRPCAction
	Sleep     *v1.SleepAction
}

func (r *review) checkHandler(p *field.Path, h handler) {
	handlers := 0
	// isFirst reports whether a handler is set and is the first one. It rejects each further handler.
	isFirst := func(isSet bool, name string) bool {
		if !isSet {
			return false
		}
		handlers++
		if handlers > 1 {
			r.addForbidden(p.Child(name), "may not have more than one handler")
		}
		return handlers == 1
	}
	if isFirst(h.Exec != nil, "exec") && len(h.Exec.Command) == 0 {
		r.rejectMissing(p.Child("exec", "command"), "")
	}
	if isFirst(h.HTTPGet != nil, "httpGet") {
		r.httpGet(p.Child("httpGet"), h.HTTPGet)
	}
	if isFirst(h.TCPSocket != nil, "tcpSocket") {
		r.checkPort(p.Child("tcpSocket", "port"), h.TCPSocket.Port)
	}
	if isFirst(h.GRPC != nil, "grpc") {
		r.inRange(p.Child("grpc", "port"), int64(h.GRPC.Port), 1, 65535)
		if m := h.GRPC.Mode; m != nil {
			oneOf(r, p.Child("grpc", "mode"), *m, v1.GRPCProbeModePlaintext, v1.GRPCProbeModeTLS)
		}
	}
	if isFirst(h.Sleep != nil, "sleep") {
		grace := *r.spec.TerminationGracePeriodSeconds
		r.failIf(h.Sleep.Seconds < 0 || h.Sleep.Seconds > grace, p.Child("sleep", "seconds"), h.Sleep.Seconds,
			fmt.Sprintf("must be between 0 and terminationGracePeriodSeconds (%d)", grace))
	}
	if handlers == 0 {
		r.rejectMissing(p, "must have a handler")
	}
}

func (r *review) httpGet(p *field.Path, h *v1.HTTPGetAction) {
	r.requireText(p.Child("path"), h.Path)
	r.checkPort(p.Child("port"), h.Port)
	oneOf(r, p.Child("scheme"), h.Scheme, v1.URISchemeHTTP, v1.URISchemeHTTPS)
	for i, header := range h.HTTPHeaders {
		r.checkRule(p.Child("httpHeaders").Index(i).Child("name"), header.Name, validation.IsHTTPHeaderName)
	}
	if h.Protocol == nil {
		return
	}
	oneOf(r, p.Child("protocol"), *h.Protocol, v1.HTTPProtocolHTTP1, v1.HTTPProtocolHTTP2)
	if *h.Protocol == v1.HTTPProtocolHTTP2 {
		r.failIf(h.Scheme != v1.URISchemeHTTP, p.Child("protocol"), *h.Protocol, "needs the scheme HTTP")
		r.failIf(h.Host != "", p.Child("host"), h.Host, "must be empty with the protocol HTTP2")
	}
}

// checkPort checks a port, which is a number or a name.
func (r *review) checkPort(p *field.Path, port intstr.IntOrString) {
	if port.Type == intstr.String {
		r.checkRule(p, port.StrVal, validation.IsValidPortName)
		return
	}
	r.inRange(p, int64(port.IntVal), 1, 65535)
}

// stopSignal checks a container's stop signal. The names of real-time signals are SIGRTMIN+n and SIGRTMAX-n.
func (r *review) stopSignal(p *field.Path, signal v1.Signal) {
	if r.spec.OS == nil {
		r.addForbidden(p, "needs spec.os.name")
		return
	}
	if r.spec.OS.Name == v1.Windows {
		oneOf(r, p, signal, v1.SIGTERM, v1.SIGKILL)
		return
	}
	signals := []v1.Signal{v1.SIGABRT, v1.SIGALRM, v1.SIGBUS, v1.SIGCHLD, v1.SIGCLD, v1.SIGCONT, v1.SIGFPE, v1.SIGHUP, v1.SIGILL,
		v1.SIGINT, v1.SIGIO, v1.SIGIOT, v1.SIGKILL, v1.SIGPIPE, v1.SIGPOLL, v1.SIGPROF, v1.SIGPWR, v1.SIGQUIT, v1.SIGSEGV, v1.SIGSTKFLT,
		v1.SIGSTOP, v1.SIGSYS, v1.SIGTERM, v1.SIGTRAP, v1.SIGTSTP, v1.SIGTTIN, v1.SIGTTOU, v1.SIGURG, v1.SIGUSR1, v1.SIGUSR2,
		v1.SIGVTALRM, v1.SIGWINCH, v1.SIGXCPU, v1.SIGXFSZ, v1.SIGRTMIN, v1.SIGRTMAX}
	for i := 1; i <= 15; i++ {
		signals = append(signals, v1.Signal(fmt.Sprintf("SIGRTMIN+%d", i)))
	}
	for i := 1; i <= 14; i++ {
		signals = append(signals, v1.Signal(fmt.Sprintf("SIGRTMAX-%d", i)))
	}
	oneOf(r, p, signal, signals...)
}
