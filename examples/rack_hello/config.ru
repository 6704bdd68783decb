# frozen_string_literal: true

require_relative "hello"

run Hello.new(File.join(__dir__, "tmp"))
