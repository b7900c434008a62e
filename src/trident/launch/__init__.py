"""Many trainings on one machine or a hundred: a launcher starts, watches and stops them.

job        what is run, and what a launcher is
child      a training in a process of its own, on cores of its own
local      processes of this machine
campaign   runs jobs by a launcher: what was lost is resumed, what crashed is told
board      what is seen of it
options    the words of the command line
"""
