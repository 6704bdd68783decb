# frozen_string_literal: true

# Starts the boot below `thruway run` in a Ruby without RubyGems; see `first/rubygems.rb`.
load "#{__dir__}/first/rubygems.rb"
