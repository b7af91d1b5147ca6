// Package top shows the usage of resources:
//
//	agent --> summary, disk I/O --> a second later: again --> rates --> tables of pods and of the node
//	agent --> processes of a pod's containers, twice -----> CPU usage --> table
package top
