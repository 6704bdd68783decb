# frozen_string_literal: true

require "minitest/autorun"
require "thruway"

class ExpandPathTest < Minitest::Test
  def test_a_relative_name_starts_at_the_base
    assert_equal "/srv/b", Thruway.expand_path("a/../b", "/srv")
  end

  def test_a_name_must_be_a_string
    error = assert_raises(TypeError) { Thruway.expand_path(1, "/srv") }
    assert_equal "no implicit conversion of Integer into String", error.message
  end
end
