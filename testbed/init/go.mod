// The first process of a simulated node and of every pod on it.
module gpupool/testbed/init

go 1.26.0
