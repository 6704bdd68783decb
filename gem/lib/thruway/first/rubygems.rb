# frozen_string_literal: true

# The first feature that Ruby requires by itself. Below `thruway run` it is found here (RUBYLIB):
# the boot starts, and the feature that was wanted comes from the pack.

load "#{__dir__}/../run.rb"
require "rubygems"
