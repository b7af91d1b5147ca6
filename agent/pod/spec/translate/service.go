package translate

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// apiService is the name of the API server's service in the namespace default. Its variables are part of every pod's
// environment.
const apiService = "kubernetes"

// serviceVariables returns the environment variables for the API server's service. Unless enableServiceLinks is
// false, it also returns variables for the services in the pod's namespace.
// https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
func serviceVariables(pod *v1.Pod, objects Objects) (map[string]string, error) {
	all, err := objects.Services(pod)
	if err != nil {
		return nil, err
	}
	links := pod.Spec.EnableServiceLinks == nil || *pod.Spec.EnableServiceLinks
	use := map[string]*v1.Service{}
	for i := range all {
		s := &all[i]
		if s.Spec.ClusterIP == "" || s.Spec.ClusterIP == v1.ClusterIPNone {
			continue
		}
		if s.Namespace == metav1.NamespaceDefault && s.Name == apiService {
			if _, hidden := use[s.Name]; !hidden { // a service in the pod's namespace takes precedence
				use[s.Name] = s
			}
		} else if links && s.Namespace == pod.Namespace {
			use[s.Name] = s
		}
	}
	vars := map[string]string{}
	for _, s := range use {
		addVariables(vars, s)
	}
	return vars, nil
}

// addVariables adds the variables for a service: its address, its named ports, and variables in the style of Docker
// links.
func addVariables(vars map[string]string, s *v1.Service) {
	name, ip := variableName(s.Name), s.Spec.ClusterIP
	vars[name+"_SERVICE_HOST"] = ip
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		port := strconv.Itoa(int(p.Port))
		protocol := string(p.Protocol)
		if protocol == "" {
			protocol = string(v1.ProtocolTCP)
		}
		url := strings.ToLower(protocol) + "://" + net.JoinHostPort(ip, port)
		if i == 0 {
			vars[name+"_SERVICE_PORT"] = port
			vars[name+"_PORT"] = url
		}
		if p.Name != "" {
			vars[name+"_SERVICE_PORT_"+variableName(p.Name)] = port
		}
		link := fmt.Sprintf("%s_PORT_%s_%s", name, port, strings.ToUpper(protocol))
		vars[link] = url
		vars[link+"_PROTO"] = strings.ToLower(protocol)
		vars[link+"_PORT"] = port
		vars[link+"_ADDR"] = ip
	}
}

func variableName(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "-", "_")) }
