package manifest

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/islet-edge/islet/internal/podspec"
)

// checkContainers checks containers and init containers. No two of them may have the same name. Two containers may not have the same host
// port, because they run at the same time. Init containers may have the same host port.
func (r *review) checkContainers(p *field.Path) {
	names, ports := map[string]bool{}, map[string]bool{}
	if len(r.spec.Containers) == 0 {
		r.rejectMissing(p.Child("containers"), "")
	}
	for i := range r.spec.Containers {
		c, at := &r.spec.Containers[i], p.Child("containers").Index(i)
		r.checkContainer(at, c)
		r.addUnique(at.Child("name"), names, c.Name)
		r.uniqueHostPorts(at.Child("ports"), c, ports)
		r.checkLifecycle(at.Child("lifecycle"), c.Lifecycle)
		r.checkProbes(at, c)
		r.restartRules(at, c)
	}
	for i := range r.spec.InitContainers {
		c, at := &r.spec.InitContainers[i], p.Child("initContainers").Index(i)
		r.checkContainer(at, c)
		r.addUnique(at.Child("name"), names, c.Name)
		r.uniqueHostPorts(at.Child("ports"), c, map[string]bool{})
		r.restartRules(at, c)
		if podspec.IsSidecar(c) {
			r.checkLifecycle(at.Child("lifecycle"), c.Lifecycle)
			r.checkProbes(at, c)
		} else {
			r.rejectLongRunning(at, c)
		}
	}
}

// checkContainer checks a container of any kind.
func (r *review) checkContainer(p *field.Path, c *v1.Container) {
	r.checkName(p.Child("name"), c.Name, validation.IsDNS1123Label)
	r.requireText(p.Child("image"), c.Image)
	r.failIf(c.Image != strings.TrimSpace(c.Image), p.Child("image"), c.Image, "must not have leading or trailing white space")
	r.pullPolicy(p.Child("imagePullPolicy"), c.ImagePullPolicy)
	oneOf(r, p.Child("terminationMessagePolicy"), c.TerminationMessagePolicy,
		v1.TerminationMessageReadFile, v1.TerminationMessageFallbackToLogsOnError)
	r.checkPorts(p.Child("ports"), c.Ports)
	r.checkEnv(p.Child("env"), c.Env)
	r.envFrom(p.Child("envFrom"), c.EnvFrom)
	r.checkMounts(p.Child("volumeMounts"), c)
	r.checkDevices(p.Child("volumeDevices"), c)
	r.checkResources(p.Child("resources"), c.Resources, r.containerResource)
	r.resizePolicy(p.Child("resizePolicy"), c.ResizePolicy)
	r.checkSecurity(p.Child("securityContext"), c.SecurityContext)
}

func (r *review) pullPolicy(p *field.Path, policy v1.PullPolicy) {
	oneOf(r, p, policy, v1.PullAlways, v1.PullIfNotPresent, v1.PullNever)
}

// rejectLongRunning rejects the fields that are only valid for long-running containers.
func (r *review) rejectLongRunning(p *field.Path, c *v1.Container) {
	for _, part := range []struct {
		isSet bool
		name  string
	}{
		{c.Lifecycle != nil, "lifecycle"},
		{c.LivenessProbe != nil, "livenessProbe"},
		{c.ReadinessProbe != nil, "readinessProbe"},
		{c.StartupProbe != nil, "startupProbe"},
	} {
		if part.isSet {
			r.addForbidden(p.Child(part.name), "is only allowed for init containers with restartPolicy Always")
		}
	}
	for i, policy := range c.ResizePolicy {
		r.failIf(policy.RestartPolicy == v1.RestartContainer, p.Child("resizePolicy").Index(i).Child("restartPolicy"),
			policy.RestartPolicy, "is only allowed for init containers with restartPolicy Always")
	}
}

func (r *review) checkPorts(p *field.Path, ports []v1.ContainerPort) {
	names := map[string]bool{}
	for i, port := range ports {
		at := p.Index(i)
		if port.Name != "" {
			r.checkRule(at.Child("name"), port.Name, validation.IsValidPortName)
			r.addUnique(at.Child("name"), names, port.Name)
		}
		if port.ContainerPort == 0 {
			r.rejectMissing(at.Child("containerPort"), "")
		} else {
			r.inRange(at.Child("containerPort"), int64(port.ContainerPort), 1, 65535)
		}
		if port.HostPort != 0 {
			r.inRange(at.Child("hostPort"), int64(port.HostPort), 1, 65535)
		}
		oneOf(r, at.Child("protocol"), port.Protocol, v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP)
	}
}

func (r *review) uniqueHostPorts(p *field.Path, c *v1.Container, seen map[string]bool) {
	for i, port := range c.Ports {
		if port.HostPort != 0 {
			r.addUnique(p.Index(i).Child("hostPort"), seen, fmt.Sprintf("%s/%s/%d", port.Protocol, port.HostIP, port.HostPort))
		}
	}
}

// resizePolicy checks the policies for changing the resources of a running container.
func (r *review) resizePolicy(p *field.Path, policies []v1.ContainerResizePolicy) {
	seen := map[string]bool{}
	for i, policy := range policies {
		at := p.Index(i)
		r.addUnique(at.Child("resourceName"), seen, string(policy.ResourceName))
		oneOf(r, at.Child("resourceName"), policy.ResourceName, v1.ResourceCPU, v1.ResourceMemory)
		oneOf(r, at.Child("restartPolicy"), policy.RestartPolicy, v1.NotRequired, v1.RestartContainer)
		r.failIf(r.spec.RestartPolicy == v1.RestartPolicyNever && policy.RestartPolicy != v1.NotRequired, at.Child("restartPolicy"),
			policy.RestartPolicy, "must be NotRequired when the pod's restartPolicy is Never")
	}
}

// restartRules checks the restart policy of a container.
func (r *review) restartRules(p *field.Path, c *v1.Container) {
	oneOfIf(r, p.Child("restartPolicy"), c.RestartPolicy,
		v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyNever, v1.ContainerRestartPolicyOnFailure)
	if c.RestartPolicy == nil && len(c.RestartPolicyRules) > 0 {
		r.rejectMissing(p.Child("restartPolicy"), "restartPolicyRules need it")
	}
	at := p.Child("restartPolicyRules")
	if n := len(c.RestartPolicyRules); n > 20 {
		r.errs = append(r.errs, field.TooMany(at, n, 20))
	}
	for i, rule := range c.RestartPolicyRules {
		oneOf(r, at.Index(i).Child("action"), rule.Action,
			v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers)
		codes := at.Index(i).Child("exitCodes")
		if rule.ExitCodes == nil {
			r.rejectMissing(codes, "")
			continue
		}
		oneOf(r, codes.Child("operator"), rule.ExitCodes.Operator,
			v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn)
		if n := len(rule.ExitCodes.Values); n > 255 {
			r.errs = append(r.errs, field.TooMany(codes.Child("values"), n, 255))
		}
	}
}
