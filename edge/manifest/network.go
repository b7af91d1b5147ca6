package manifest

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/islet-edge/islet/internal/podspec"
)

// hostNames checks the hostname, the subdomain and the hostAliases of a pod.
func (r *review) hostNames(p *field.Path) {
	s := r.spec
	if s.Hostname != "" {
		r.checkRule(p.Child("hostname"), s.Hostname, validation.IsDNS1123Label)
	}
	if s.Subdomain != "" {
		r.checkRule(p.Child("subdomain"), s.Subdomain, validation.IsDNS1123Label)
	}
	if s.HostnameOverride != nil {
		at := p.Child("hostnameOverride")
		if podspec.IsTrue(s.SetHostnameAsFQDN) {
			r.addForbidden(at, "cannot be combined with setHostnameAsFQDN")
		}
		if s.HostNetwork {
			r.addForbidden(at, "cannot be combined with hostNetwork")
		}
		if len(*s.HostnameOverride) > 64 {
			r.errs = append(r.errs, field.TooLong(at, "", 64))
		}
		r.checkRule(at, *s.HostnameOverride, checkSubdomain)
	}
	for i, alias := range s.HostAliases {
		at := p.Child("hostAliases").Index(i)
		r.checkAddress(at.Child("ip"), alias.IP)
		for j, name := range alias.Hostnames {
			r.checkRule(at.Child("hostnames").Index(j), name, checkSubdomain)
		}
	}
}

func (r *review) checkAddress(p *field.Path, ip string) {
	r.errs = append(r.errs, validation.IsValidIPForLegacyField(p, ip, true, nil)...)
}

// checkDNS checks the dnsConfig of a pod. The limits come from resolv.conf and glibc.
func (r *review) checkDNS(p *field.Path) {
	oneOf(r, p.Child("dnsPolicy"), r.spec.DNSPolicy, v1.DNSClusterFirst, v1.DNSClusterFirstWithHostNet, v1.DNSDefault, v1.DNSNone)
	p = p.Child("dnsConfig")
	config := r.spec.DNSConfig
	if r.spec.DNSPolicy == v1.DNSNone && (config == nil || len(config.Nameservers) == 0) {
		r.rejectMissing(p.Child("nameservers"), "dnsPolicy None requires at least one")
	}
	if config == nil {
		return
	}
	const maxServers, maxSearches, maxChars = 3, 32, 2048
	servers := len(config.Nameservers)
	r.failIf(servers > maxServers, p.Child("nameservers"), servers, fmt.Sprintf("must be at most %d", maxServers))
	for i, server := range config.Nameservers {
		r.checkAddress(p.Child("nameservers").Index(i), server)
	}
	at := p.Child("searches")
	r.failIf(len(config.Searches) > maxSearches, at, len(config.Searches), fmt.Sprintf("must be at most %d", maxSearches))
	chars := len(strings.Join(config.Searches, " "))
	r.failIf(chars > maxChars, at, "", fmt.Sprintf("must have at most %d characters, including the spaces between them", maxChars))
	for i, search := range config.Searches {
		if search != "." {
			r.checkRule(at.Index(i), strings.TrimSuffix(search, "."), validation.IsDNS1123SubdomainWithUnderscore)
		}
	}
	for i, option := range config.Options {
		r.requireText(p.Child("options").Index(i).Child("name"), option.Name)
	}
}

// hostPorts checks that a pod in the host's network declares its ports as host ports.
func (r *review) hostPorts(p *field.Path) {
	if !r.spec.HostNetwork {
		return
	}
	for i, c := range r.spec.Containers {
		for j, port := range c.Ports {
			r.failIf(port.HostPort != port.ContainerPort, p.Child("containers").Index(i).Child("ports").Index(j).Child("hostPort"),
				port.HostPort, "must be equal to containerPort with hostNetwork")
		}
	}
}
