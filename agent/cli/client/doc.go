// Package client connects the commands to the agent:
//
//	command --> Get, Call, Stream --> watchdog --> /run/islet/islet.sock --> agent
//	   ^                                                                      |
//	   '------ values, or an error with an exit code and advice <-------------'
//
//	NAME, -n, -l --> ListPods --> FindPod, ChoosePod, SelectPods --> the pods that the user means
package client
